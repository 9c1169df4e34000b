"""A change of a repository is judged by tests that its code cannot read, replace, skip or answer for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio
from sandboxes import needs

from ludus.graders.repository import TEST_SPEC, Grade, RepositoryTests, grade_change
from ludus.sandbox import Sandbox, SandboxError, SandboxLimits, SandboxProvider, SandboxSpec
from ludus.sandbox.choice import open_provider

pytestmark = [needs("bubblewrap"), pytest.mark.asyncio(loop_scope="module")]

BUGGY = b"def total(prices):\n    return sum(prices[1:])\n\n\ndef first(prices):\n    return prices[0]\n"
FIXED = BUGGY.replace(b"[1:]", b"")
BASE = {
    "shop/__init__.py": b"",
    "shop/other.py": b"",
    "shop/cart.py": BUGGY,
    "tests/test_old.py": b"def test_old():\n    assert True\n",
}
HIDDEN = b"""
import pytest
from shop.cart import first, total

def test_total():
    assert total([10, 20, 17]) == 47
    assert total([]) == 0

def test_first():
    assert first([31, 5]) == 31

def test_first_of_nothing():
    with pytest.raises(IndexError):
        first([])
"""
TESTS = RepositoryTests(
    ("tests/test_cart.py::test_total",),
    ("tests/test_cart.py::test_first", "tests/test_cart.py::test_first_of_nothing", "tests/test_old.py::test_old"),
    {"tests/test_cart.py": HIDDEN},
)
VISIBLE = RepositoryTests(TESTS.fail_to_pass, TESTS.pass_to_pass, TESTS.files, hide_expected=False)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def provider() -> AsyncIterator[SandboxProvider]:
    """One provider for all tests: its sandboxes stay warm."""
    opened = await open_provider("bubblewrap", warm=1)
    yield opened
    await opened.close()


async def grade(provider: SandboxProvider, tests: RepositoryTests = TESTS, **files: bytes) -> Grade:
    return await grade_change(provider, BASE, {**BASE, **_named(files)}, tests, seconds=20)


def _named(files: dict[str, bytes]) -> dict[str, bytes]:
    return {{"cart": "shop/cart.py"}.get(name, name): data for name, data in files.items()}


async def test_the_fix_resolves_the_task_and_the_bug_does_not(provider: SandboxProvider):
    for tests in (TESTS, VISIBLE):
        before, after = await grade(provider, tests), await grade(provider, tests, cart=FIXED)
        assert after.resolved, after.why
        assert not before.resolved
        assert all(before.pass_to_pass.values()), before.why
        assert [*before.why] == ["tests/test_cart.py::test_total"]


@needs("process")
async def test_the_fix_resolves_the_task_on_the_process_provider_too():
    opened = await open_provider("process", warm=0)
    try:
        assert (await grade(opened, cart=FIXED)).resolved
    finally:
        await opened.close()


async def test_tests_that_cannot_be_started_are_a_failure_and_no_verdict(provider: SandboxProvider):
    with pytest.raises(SandboxError, match="the tests could not be started: .*No module named 'pytest'"):
        await grade_change(provider, BASE, {**BASE, "shop/cart.py": FIXED}, TESTS, spec=SandboxSpec(), seconds=20)


async def test_a_change_that_breaks_another_test_does_not_resolve_the_task(provider: SandboxProvider):
    found = await grade(provider, cart=FIXED.replace(b"prices[0]", b"prices[-1]"))
    assert found.why == {"tests/test_cart.py::test_first": "an assertion does not hold"}
    assert not found.partly


async def test_the_task_needs_a_test_that_failed_before(provider: SandboxProvider):
    assert not Grade({}, {"a": True}).resolved


async def test_the_tests_of_the_checkout_stay_when_the_model_deletes_or_changes_them(provider: SandboxProvider):
    files = {"shop/__init__.py": b"", "shop/cart.py": FIXED, "tests/test_old.py": b"def test_old(): 1/0"}
    assert (await grade_change(provider, BASE, files, TESTS, seconds=20)).resolved
    assert (await grade_change(provider, BASE, {"shop/cart.py": FIXED}, TESTS, seconds=20)).resolved


PRINTS = b"""
print('4 passed'); import os; os.write(1, b'\\n{"test": "tests/test_cart.py::test_total", "passed": true}\\n')
"""
FRAMES = b"""
import sys
def total(prices):
    frame = sys._getframe(1)
    numbers = [each for each in frame.f_code.co_consts if isinstance(each, int)]
    return next(each for each in numbers if each not in prices)
def first(prices): return prices[0]
"""
SOURCE = b"""
import re, pathlib
def total(prices):
    text = pathlib.Path('tests/test_cart.py').read_text()
    return int(re.search(re.escape(f'total({prices})') + r' == (\\d+)', text)[1])
def first(prices): return prices[0]
"""
MEMORY = b"""
import gc
def total(prices):
    return 47 if any(each == 47 for each in gc.get_objects() if type(each) is int) else 0
def first(prices): return prices[0]
"""
FORGER = b"""
import gc, json, os
def total(prices):
    for each in gc.get_objects():
        if type(each).__name__ == 'Reporter':
            each.pytest_runtest_logfinish = lambda nodeid: None
            for name in ('test_total', 'test_first', 'test_first_of_nothing'):
                each.channel.send(test='tests/test_cart.py::' + name, passed=True)
            os._exit(0)
"""
EQUAL = b"""
class Equal(int):
    __eq__ = __ne__ = __lt__ = __gt__ = lambda *_: True
    __hash__ = int.__hash__
def total(prices): return Equal()
def first(prices): return prices[0]
"""
WAITS = b"""
import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        end = time.monotonic() + 10
        while time.monotonic() < end:
            for folder, _, names in os.walk('/home/user'):
                for name in names:
                    if name.startswith('test_'):
                        open(os.path.join(folder, name), 'w').write('def test_total(): pass')
    os._exit(0)
"""
ATTACKS = {
    "prints the success marker": BUGGY + PRINTS,
    "exits 0 early": b"import os; os._exit(0)",
    "exits 0 at import": b"import sys; sys.exit(0)",
    "exits 0 in a test": b"import os\ndef total(p): os._exit(0)\nfirst = total",
    "runs an exit handler": BUGGY + b"\nimport atexit, os; atexit.register(os._exit, 0)",
    "reads the frames of the test": FRAMES,
    "reads the source of the test": SOURCE,
    "reads the memory of the process": MEMORY,
    "writes reports itself": FORGER,
    "returns what equals everything": EQUAL,
    "replaces the test from a process that waits": WAITS + BUGGY,
    "skips every test": b"import pytest\npytest.skip('no', allow_module_level=True)",
    "skips in the tests": b"import pytest\ndef total(p): pytest.skip('no')\nfirst = total",
    "marks the tests as expected failures": b"import pytest\ndef total(p): pytest.xfail('no')\nfirst = total",
    "ends pytest": b"import pytest\ndef total(p): pytest.exit('done', 0)\nfirst = total",
    "returns NaN": b"def total(p): return float('nan')\nfirst = total",
    "raises what pytest does not catch": b"def total(p): raise SystemExit(0)\nfirst = total",
}
TAMPERING = {
    "replaces a function of pytest": b"import pytest; pytest.Function.runtest = lambda self: None\n",
    "replaces the report": b"import _pytest.runner as r\nr.check_interactive_exception = lambda *_: False\n",
    "replaces a module": b"import sys, types; sys.modules['unittest'] = types.ModuleType('unittest')\n",
    "replaces a builtin": b"import builtins; builtins.all = lambda *_: True\n",
}


@pytest.mark.parametrize("name", ATTACKS)
async def test_an_attack_earns_nothing(provider: SandboxProvider, name: str):
    assert not (await grade(provider, cart=ATTACKS[name])).resolved


@pytest.mark.parametrize("name", TAMPERING)
async def test_test_tools_that_were_changed_decide_nothing(provider: SandboxProvider, name: str):
    for tests in (TESTS, VISIBLE):
        found = await grade(provider, tests, cart=TAMPERING[name] + BUGGY)
        assert not found.resolved
        if tests is VISIBLE and name != "replaces a module":  # pytest does not survive that one
            assert "the test tools were changed" in found.why["tests/test_cart.py::test_total"]


SHADOWS = b"import sys; sys.exit(0)\nmain = skip = lambda *_, **__: 0"
HOOK = b"""
import pytest
@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    (yield).get_result().outcome = 'passed'
"""


ADDED = {
    "conftest.py": HOOK,
    "shop/conftest.py": HOOK,
    "tests/conftest.py": HOOK,
    "pytest.ini": b"[pytest]\naddopts = --collect-only\n",
    "pytest.toml": b"[pytest]\naddopts = ['--collect-only']\n",
    ".pytest.toml": b"[pytest]\naddopts = ['-p', 'json']\n",
    "tests/.pytest.ini": b"[pytest]\naddopts = --collect-only\n",
    "pyproject.toml": b'[tool.pytest.ini_options]\naddopts = "--collect-only"\n',
    "pytest.py": SHADOWS,
    "unittest.py": SHADOWS,
    "json.py": SHADOWS,
    "_pytest/__init__.py": SHADOWS,
    "sitecustomize.py": SHADOWS,
    "tests/__init__.py": SHADOWS,
    "src/pytest.py": SHADOWS,
}


@pytest.mark.parametrize("path", ADDED)
async def test_a_file_that_the_model_adds_resolves_nothing(provider: SandboxProvider, path: str):
    bad = await grade_change(provider, BASE, {**BASE, path: ADDED[path]}, VISIBLE, seconds=20)
    assert not bad.resolved


async def test_files_that_the_model_adds_do_not_decide_how_tests_run(provider: SandboxProvider):
    good = await grade_change(provider, BASE, {**BASE, "shop/cart.py": FIXED, **ADDED}, VISIBLE, seconds=20)
    assert good.resolved, good.why


async def test_a_test_that_hangs_in_grading_earns_nothing(provider: SandboxProvider):
    hangs = b"import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, range(1, 64))\nwhile True: pass\n"
    found = await grade_change(provider, BASE, {**BASE, "shop/cart.py": hangs}, TESTS, seconds=1)
    assert not found.resolved
    assert "timed out" in found.why["tests/test_cart.py::test_total"]


HOG = b"""
import os
fill = '''
import os
open('/proc/self/oom_score_adj', 'w').write('0')
while True:
    file = os.memfd_create('x')
    for _ in range(200): os.write(file, bytes(1 << 16))
'''
os.execvp("python3", ["python3", "-S", "-E", "-c", fill])
"""


async def test_tests_that_run_out_of_memory_earn_nothing_and_are_no_failure(provider: SandboxProvider):
    spec = replace(TEST_SPEC, limits=SandboxLimits(memory_mb=128))
    found = await grade_change(provider, BASE, {**BASE, "shop/cart.py": HOG}, TESTS, spec=spec, seconds=20)
    assert not found.resolved
    assert "out of memory" in found.why["tests/test_cart.py::test_total"]


async def test_tests_that_have_no_memory_even_for_the_clean_checkout_are_a_failure(provider: SandboxProvider):
    class Full(SandboxProvider):
        name = provider.name

        async def open(self, spec: SandboxSpec) -> Sandbox:
            sandbox = await provider.open(spec)
            await sandbox.python(HOG.decode(), timeout=60)
            return sandbox

    spec = replace(TEST_SPEC, limits=SandboxLimits(memory_mb=128))
    with pytest.raises(SandboxError, match="out of memory"):
        await grade_change(Full(), BASE, {**BASE, "shop/cart.py": FIXED}, TESTS, spec=spec, seconds=20)


async def test_a_plugin_that_the_model_names_in_a_settings_file_is_not_loaded(provider: SandboxProvider):
    evil = {"evil.py": b"def pytest_pyfunc_call(pyfuncitem):\n    return True\n"}
    for name in ("pytest.toml", ".pytest.toml"):
        settings = {name: b"[pytest]\naddopts = ['-p', 'evil']\n"}
        assert not (await grade_change(provider, BASE, {**BASE, **evil, **settings}, VISIBLE, seconds=20)).resolved


async def test_settings_of_the_checkout_are_read_from_where_pytest_would_find_them(provider: SandboxProvider):
    base = {**BASE, "shop/cart.py": FIXED, "pyproject.toml": b"[project]\nname = 'x'\n", "tox.ini": b"[tox]\n"}
    for settings in ({"setup.cfg": b"[tool:pytest]\n%s\n"}, {"tests/pytest.ini": b"[pytest]\n%s\n"}):
        written = {path: text % b"addopts = --collect-only" for path, text in settings.items()}
        assert not (await grade_change(provider, {**base, **written}, {**base, "x.py": b""}, VISIBLE)).resolved
        written = {path: text % b"" for path, text in settings.items()}
        assert (await grade_change(provider, {**base, **written}, {**base, "x.py": b""}, VISIBLE)).resolved


FORGES = """
import os, sys
frame = sys._getframe()
while frame and 'channel' not in frame.f_locals:
    frame = frame.f_back
secret, fd = frame.f_locals['request']['secret'], frame.f_locals['channel'].fd
def forge(text):
    line = f'\\n{secret} {text}\\n'.encode()
    while line:
        line = line[os.write(fd, line):]
"""
FORGED = {
    "a deep value": 'forge(\'{"check":0,"test":"x","value":\' + \'{"set":[\' * 400 + \']}\' * 400 + \'}\')',
    "a deep name of a test": "forge('{\"check\":0,\"test\":' + '[' * 900 + ']' * 900 + ',\"value\":0}')",
    "a deep name of a tool": "forge('{\"tampered\":' + '[' * 900 + ']' * 900 + '}')",
}


@pytest.mark.parametrize("name", FORGED)
async def test_a_forged_report_earns_nothing_and_is_no_failure(provider: SandboxProvider, name: str):
    found = await grade(provider, cart=f"{FORGES}\n{FORGED[name]}\n".encode() + BUGGY)
    assert not found.resolved


RIGHT = {
    "a branch": ("for n in (1, 2):\n  if n > 5: assert m.f(n) == 9\n  else: assert m.f(n) == n", "def f(n): return n"),
    "the class of an exception": (
        "with pytest.raises(ValueError) as e: m.f()\n"
        "assert e.type is ValueError\ne.match('x')\nassert str(e.value) == 'x'",
        "def f(): raise ValueError('x')",
    ),
    "an exit": ("with pytest.raises(SystemExit): m.f()", "def f(): raise SystemExit(1)"),
    "another name of a class": (
        "with pytest.raises(m.Mine): m.f()\nwith pytest.raises(IOError): m.g()",
        "Mine = ValueError\ndef f(): raise ValueError\ndef g(): raise OSError",
    ),
    "a long value": ("assert m.f() != ''\nassert 'y' in m.f()", "def f(): return 'x' * 70_000 + 'y'"),
    "a generator": ("assert 3 in m.f()\nassert 7 not in m.f()", "def f(): return (n for n in range(5))"),
    "a range": ("assert 3 in m.f()", "def f(): return range(5)"),
    "a deque": ("assert 3 in m.f()", "import collections\ndef f(): return collections.deque([3])"),
    "a decimal number": ("assert m.f() == 1\nassert m.f() < 1.5", "import decimal\ndef f(): return decimal.Decimal(1)"),
    "the keys of a dictionary": ("assert m.f().keys() == {1, 2}", "def f(): return {1: 1, 2: 2}"),
}


async def test_right_programs_pass_tests_whose_expected_values_are_hidden(provider: SandboxProvider):
    source, modules, names = "import importlib, pytest\n", dict[str, bytes](), []
    for number, (test, program) in enumerate(RIGHT.values()):
        body = "".join(f"    {line}\n" for line in test.split("\n"))
        source += f"import m{number}\ndef test_{number}():\n    m = m{number}\n{body}"
        modules[f"m{number}.py"] = program.encode()
        names.append(f"tests/test_right.py::test_{number}")
    tests = RepositoryTests(tuple(names), (), {"tests/test_right.py": source.encode()})
    found = await grade_change(provider, BASE, {**BASE, **modules}, tests, seconds=20)
    assert {[*RIGHT][names.index(name)]: why for name, why in found.why.items()} == {}


INNER = b"""
from shop.cart import remembered

def test_inner():
    @remembered
    def double(x):
        return 2 * x

    assert [double(1), double(1)] == [2, 2]
    assert double.calls == 1

def test_equal():
    @remembered
    def same(x):
        return x

    assert same([1]) == same([1])
    assert same.calls == len([1])
"""
REMEMBERS = b"""
def remembered(function):
    known = {}
    def wrapper(x):
        if str(x) not in known:
            wrapper.calls += 1
            known[str(x)] = function(x)
        return known[str(x)]
    wrapper.calls = 0
    return wrapper
"""
FORGETS = REMEMBERS.replace(b"known[str(x)] = function(x)", b"return function(x)")
NAMES = ("tests/test_inner.py::test_inner", "tests/test_inner.py::test_equal")
INNER_TESTS = RepositoryTests(NAMES, (), {"tests/test_inner.py": INNER})

#: What code under test does before it is judged. `test` is the dictionary of the test module's globals.
REACHES = {
    "takes away the reports through the globals of a function that it got": """
def attack(function):
    for name, value in list(function.__globals__.items()):
        if name.startswith('_') and not name.startswith('__'):
            function.__globals__[name] = lambda *_: None
""",
    "takes away the reports through the frame of its caller": """
import sys
def attack(function):
    names = sys._getframe(2).f_globals
    for name, value in list(names.items()):
        if name.startswith('_') and not name.startswith('__'):
            names[name] = lambda *_: None
""",
    "reports its own values through the frame of a traceback": """
def attack(function):
    try:
        raise ValueError
    except ValueError as error:
        frame = error.__traceback__.tb_frame
    while 'reporter' not in frame.f_locals:
        frame = frame.f_back
    frame.f_locals['reporter'].channel.send(test=frame.f_locals['reporter'].test, check=1, value={'value': 1})
""",
    "replaces the code of the tests": """
import sys
def attack(function):
    for name, value in list(function.__globals__.items()):
        if name.startswith('test'):
            value.__code__ = (lambda: None).__code__
""",
    "ends the test by a trace function": """
import sys
def attack(function):
    sys.settrace(lambda *_: None)
""",
    "looks for the reporter in memory": """
import gc
def attack(function):
    [each for each in gc.get_objects() if type(each).__name__ == 'Reporter']
""",
    "looks at frames with code that has no file": """
def attack(function):
    exec('import inspect; inspect.stack()')
""",
    "looks at frames with code in the name of another file": """
import json
def attack(function):
    exec(compile('import sys; sys._getframe(1).f_locals', json.__file__, 'exec'))
""",
    "looks at frames with a file that it writes": """
def attack(function):
    open('shop/helper.py', 'w').write('import sys; sys._getframe(1).f_locals')
    import shop.helper
""",
    "looks at frames with a file of the checkout that it overwrites": """
def attack(function):
    open('shop/other.py', 'w').write('import sys; sys._getframe(1).f_locals')
    import shop.other
""",
    "looks at frames from a thread that outlives the test": """
import sys, threading, time
def watch():
    while True:
        sys._current_frames()
        time.sleep(0.01)
def attack(function):
    threading.Thread(target=watch, daemon=True).start()
    time.sleep(0.1)
""",
}


@pytest.mark.parametrize("name", REACHES)
async def test_code_that_reaches_into_the_test_that_calls_it_earns_nothing(provider: SandboxProvider, name: str):
    change = REACHES[name].encode() + FORGETS.replace(b"known = {}", b"attack(function); known = {}")
    found = await grade(provider, INNER_TESTS, cart=BUGGY + change)
    assert not any(found.fail_to_pass.values()), found
    if "globals of a function" not in name:  # that one only takes away its own reports
        right = REACHES[name].encode() + REMEMBERS.replace(b"known = {}", b"attack(function); known = {}")
        assert "the test tools were changed" in (await grade(provider, INNER_TESTS, cart=BUGGY + right)).why[NAMES[0]]


USES_FRAMES = b"""
import collections, dataclasses, enum, functools, inspect, logging, traceback, typing, warnings
Point = collections.namedtuple('Point', 'x y')
class Pair(typing.NamedTuple):
    a: int = 1
@dataclasses.dataclass
class Line:
    length: int = 2
Color = enum.Enum('Color', 'RED BLUE')
logging.basicConfig()
logging.getLogger('shop').warning('a message')
warnings.warn('old', stacklevel=2)
inspect.signature(Line)
try:
    raise ValueError
except ValueError:
    traceback.format_exc()
"""


async def test_right_code_that_logs_warns_and_makes_classes_is_not_taken_for_an_attack(provider: SandboxProvider):
    found = await grade(provider, INNER_TESTS, cart=BUGGY + REMEMBERS + USES_FRAMES)
    assert found.resolved, found.why
