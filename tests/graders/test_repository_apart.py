"""Code under test in a process of its own cannot reach the tests, their tools, their files or their reports."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from sandboxes import needs

from ludus.graders.repository import Grade, RepositoryTests, grade_change
from ludus.sandbox import SandboxProvider
from ludus.sandbox.choice import open_provider

pytestmark = [needs("bubblewrap"), pytest.mark.asyncio(loop_scope="module")]

BUGGY = "def total(prices):\n    return sum(prices[1:])\n"
FIXED = BUGGY.replace("[1:]", "")
BASE = {
    "shop/__init__.py": b"",
    "shop/cart.py": BUGGY.encode(),
    "tests/expected.txt": b"47",
    "tests/helpers.py": b"def same(left, right):\n    return left == right\n",
    "tests/__init__.py": b"",
}
HIDDEN = b"""
import pathlib
from shop.cart import total
from tests.helpers import same

def test_total():
    expected = int(pathlib.Path(__file__).with_name("expected.txt").read_text())
    assert total([10, 20, 17]) == expected
    assert same(total([]), 0)
    assert [total([number]) for number in range(5)] == list(range(5))

def test_later():
    assert total([5]) == 5
"""
NAMES = ("tests/test_cart.py::test_total", "tests/test_cart.py::test_later")
#: Expected values are inside, where a test of one process could be fooled in many ways.
VISIBLE = RepositoryTests(NAMES, (), {"tests/test_cart.py": HIDDEN}, hide_expected=False, apart=True)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def provider() -> AsyncIterator[SandboxProvider]:
    """One provider for all tests: its sandboxes stay warm."""
    opened = await open_provider("bubblewrap", warm=1)
    yield opened
    await opened.close()


async def grade(provider: SandboxProvider, source: str, tests: RepositoryTests = VISIBLE) -> Grade:
    return await grade_change(provider, BASE, {**BASE, "shop/cart.py": source.encode()}, tests, seconds=30)


async def test_the_fix_passes_and_the_bug_does_not(provider: SandboxProvider):
    good, bad = await grade(provider, FIXED), await grade(provider, BUGGY)
    assert good.resolved, good.why
    assert bad.why == dict.fromkeys(NAMES, "it failed")


REPORTS = """
import os, json
real_write, real_dumps = os.write, json.dumps
os.write = lambda fd, data: real_write(fd, data.replace(b'"passed": false', b'"passed": true'))
"""
CONFIG = """
import _pytest.mark.structures as structures
for plugin in structures.MARK_GEN._config.pluginmanager.get_plugins() if structures.MARK_GEN._config else ():
    if type(plugin).__name__ == 'Reporter':
        for name in ('test_total', 'test_later'):
            plugin.channel.send(test='tests/test_cart.py::' + name, passed=True)
        plugin.channel.send(finished=True)
        import os; os._exit(0)
"""
DUMPS = """
import json
real = json.dumps
def dumps(report, *arguments, **named):
    if isinstance(report, dict) and 'passed' in report: report['passed'] = True
    return real(report, *arguments, **named)
json.dumps = dumps
"""
FRAMES = """
import gc, sys
def total(prices):
    frame = sys._getframe()
    while frame:
        for value in [*frame.f_locals.values(), *frame.f_globals.values()]:
            if type(value).__name__ == 'Reporter':
                value.channel.send(test='tests/test_cart.py::test_total', passed=True)
            if getattr(value, '__name__', '') == 'test_total':
                value.__code__ = (lambda: None).__code__
        frame = frame.f_back
    for value in gc.get_objects():
        if type(value).__name__ == 'Reporter':
            value.pytest_runtest_logreport = lambda report: value.outcomes.append('passed')
    return 47
"""
MEMORY = """
import os, subprocess, sys
script = '''
import os, re, sys
for pid in filter(str.isdigit, os.listdir("/proc")):
    try:
        for fd in os.listdir(f"/proc/{pid}/fd"):
            with open(f"/proc/{pid}/fd/{fd}", "wb", buffering=0) as file: file.write(b"x")
    except OSError: pass
    try:
        spans = re.findall(r"^([0-9a-f]+)-([0-9a-f]+) rw", open(f"/proc/{pid}/maps").read(), re.M)
        with open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
            for start, end in spans:
                memory.seek(int(start, 16)); data = memory.read(int(end, 16) - int(start, 16))
                if b"expected" in data:
                    memory.seek(int(start, 16)); memory.write(data.replace(b'"passed": false', b'"passed": true '))
    except (OSError, ValueError, OverflowError): pass
'''
def total(prices):
    subprocess.run([sys.executable, '-c', script], capture_output=True)
    return 0
"""
WRITES_TEST = """
import pathlib
for path in pathlib.Path('tests').rglob('*.py'):
    path.write_text('def same(*_): return True\\ndef test_total(): pass\\ndef test_later(): pass\\n')
"""
WRITES_AND_RESTORES = """
import os, pathlib
def total(prices):
    if len(prices) == 3:
        pathlib.Path('tests/expected.txt').write_text('47')
        os.utime('tests/expected.txt', (0, 0))
    return sum(prices)
"""
SHADOWS = """
import os
os.makedirs('tests/helpers', exist_ok=True)
open('tests/helpers/__init__.py', 'w').write('same = lambda *_: True')
os.makedirs('tests/__pycache__', exist_ok=True)
def total(prices): return sum(prices)
"""
EQUALS = """
class Equal:
    __eq__ = __ne__ = __lt__ = __gt__ = __contains__ = __bool__ = lambda *_: True
    __hash__ = None
    __class__ = int
def total(prices): return Equal()
"""
EQUAL_NUMBER = """
class Equal(int):
    __eq__ = __ne__ = lambda *_: True
    __hash__ = int.__hash__
def total(prices): return Equal(3)
"""
TAKES_PIPES = """
import json, os, struct
def total(prices):
    for fd in range(3, 60):
        message = json.dumps(['done', 47, [], []]).encode()
        try: os.write(fd, struct.pack('!Q', len(message)) + message)
        except OSError: pass
    return 0
"""
KILLS = """
import os, signal
def total(prices):
    os.kill(os.getppid(), signal.SIGKILL)
    return sum(prices)
"""
EXITS = """
import os
def total(prices):
    os.write(1, b'\\n{"test": "tests/test_cart.py::test_total", "passed": true}\\n')
    os._exit(0)
"""
FOREIGN = """
import _pytest.outcomes, unittest
def total(prices): raise _pytest.outcomes.Skipped('no')
"""
LATER = """
import atexit, threading, time, os
def wait():
    while True: os.write(1, b'{"passed": true}\\n'); time.sleep(0.01)
threading.Thread(target=wait, daemon=True).start()
atexit.register(os._exit, 0)
"""
HOOKS = """
import builtins, sys
class Finder:
    def find_spec(self, name, path=None, target=None): return None
sys.meta_path.insert(0, Finder())
builtins.all = builtins.any = builtins.isinstance = lambda *_: True
"""
TRACES = """
import sys
sys.settrace(lambda frame, event, argument: None)
sys.setprofile(lambda *_: None)
if hasattr(sys, 'monitoring'):
    sys.monitoring.use_tool_id(3, 'x')
import ctypes
ctypes.c_long.from_address(id(17) + 24)
"""
ATTACKS = {
    "replaces os.write": REPORTS + BUGGY,
    "replaces json.dumps": DUMPS + BUGGY,
    "finds the reporter through pytest": CONFIG + BUGGY,
    "looks through frames and memory": FRAMES,
    "writes the memory and files of other processes": MEMORY,
    "writes the files of the tests": WRITES_TEST + BUGGY,
    "answers in the place of its own process": TAKES_PIPES,
    "ends the process of the tests": KILLS,
    "ends its own process": EXITS,
    "returns an object that equals everything": EQUALS,
    "returns a number that equals everything": EQUAL_NUMBER,
    "raises an exception of pytest": FOREIGN,
    "leaves a thread and an exit handler": LATER + BUGGY,
    "replaces builtins and import hooks": HOOKS + BUGGY,
    "traces and writes its memory": TRACES + BUGGY,
}


@pytest.mark.parametrize("name", ATTACKS)
async def test_an_attack_passes_no_test_whose_bug_it_leaves(provider: SandboxProvider, name: str):
    assert not (await grade(provider, ATTACKS[name])).fail_to_pass[NAMES[0]]


@pytest.mark.parametrize("attack", [WRITES_AND_RESTORES, SHADOWS], ids=["restores", "shadows"])
async def test_code_that_touches_the_files_of_the_tests_passes_none(provider: SandboxProvider, attack: str):
    found = await grade(provider, attack)
    assert "the files of the tests" in found.why[NAMES[0]]


#: A test, and code that passes it only if values keep their meaning on the way between the processes.
RIGHT = {
    "a list that the code changes": ("given = [1]\nm.grow(given)\nassert given == [1, 2]", "def grow(x): x.append(2)"),
    "a list that the code keeps": (
        "box = m.Box(given := [1])\ngiven.append(2)\nassert box.size() == 2\nbox.add(3)\nassert given == [1, 2, 3]",
        "class Box:\n  def __init__(self, x): self.x = x\n  def size(self): return len(self.x)\n"
        "  def add(self, v): self.x.append(v)",
    ),
    "a list of the code": (
        "log = m.log\nm.work()\nassert log == ['a'] and m.log is log",
        "log = []\nwork = lambda: log.append('a')",
    ),
    "lists in dictionaries": (
        "d = {'a': [1]}\nm.f(d)\nassert d == {'a': [1, 2], 'b': {3}}",
        "def f(d): d['a'].append(2); d['b'] = {3}",
    ),
    "a callback that raises": (
        "class Mine(Exception): pass\ndef f(): raise Mine('x')\nwith pytest.raises(Mine) as e: m.call(f)\n"
        "assert str(e.value) == 'x'",
        "def call(f): return f()",
    ),
    "an exception of the code": (
        "with pytest.raises(m.Bad) as e: m.f()\nassert e.value.code == 7 and str(e.value) == 'bad 7'\n"
        "with pytest.raises(ValueError): m.f()",
        "class Bad(ValueError):\n  def __init__(self, code): self.code = code\n"
        "  def __str__(self): return f'bad {self.code}'\ndef f(): raise Bad(7)",
    ),
    "an exception of the code that the test raises": (
        "def f(): raise m.Bad('x')\nassert m.call(f) == 'caught'",
        "class Bad(Exception): pass\ndef call(f):\n  try: f()\n  except Bad: return 'caught'",
    ),
    "a generator and a context manager": (
        "assert list(m.count(3)) == [0, 1, 2]\nwith m.opened() as x: assert x == 5\nassert m.log == ['closed']",
        "import contextlib\nlog = []\ndef count(n): yield from range(n)\n@contextlib.contextmanager\n"
        "def opened():\n  yield 5\n  log.append('closed')",
    ),
    "operators": (
        "a = m.V(1) + m.V(2)\nassert a == m.V(3) and a != m.V(4) and a.n == 3\n"
        "assert len({a, m.V(3)}) == 1 and -a == m.V(-3)",
        "class V:\n  def __init__(s, n): s.n = n\n  def __add__(s, o): return V(s.n + o.n)\n"
        "  def __eq__(s, o): return s.n == o.n\n  def __hash__(s): return s.n\n  def __neg__(s): return V(-s.n)",
    ),
    "an enumeration and a named tuple": (
        "assert m.f() is m.Color.RED and m.Color.RED.value == 1\np = m.point()\nassert p == (1, 2) and p.x == 1",
        "import enum, collections\nColor = enum.Enum('Color', 'RED BLUE')\nPoint = collections.namedtuple('P', 'x y')\n"
        "def f(): return Color.RED\ndef point(): return Point(1, 2)",
    ),
    "dates and decimals": (
        "import datetime, decimal\nd = datetime.datetime(2024, 1, 2, tzinfo=datetime.timezone.utc)\n"
        "assert m.later(d) - d == datetime.timedelta(days=1)\n"
        "assert m.half(decimal.Decimal('0.3')) == decimal.Decimal('0.15')",
        "import datetime\ndef later(d): return d + datetime.timedelta(days=1)\ndef half(d): return d / 2",
    ),
    "a function of the code that is replaced": (
        "monkeypatch.setattr(m, 'now', lambda: 5)\nassert m.f() == 6\nmonkeypatch.undo()\nassert m.f() == 1",
        "def now(): return 0\ndef f(): return now() + 1",
    ),
    "files": ("m.save(tmp_path / 'x')\nassert (tmp_path / 'x').read_text() == 'y'", "def save(p): p.write_text('y')"),
    "classes": (
        "x = m.A()\nassert isinstance(x, m.A) and not isinstance(x, m.B)\nassert type(x).__name__ == 'A'",
        "class A: pass\nclass B: pass",
    ),
    "a great number": ("assert m.f() == 10**5000", "def f(): return 10**5000"),
    "a thousand lists": (
        "assert [m.f([n]) for n in range(1000)] == [[n, n] for n in range(1000)]",
        "def f(x): return x * 2",
    ),
}


async def test_values_keep_their_meaning_on_the_way(provider: SandboxProvider):
    source, modules, names = "import pytest\n", dict[str, bytes](), []
    for number, (test, program) in enumerate(RIGHT.values()):
        body = "".join(f"    {line}\n" for line in test.split("\n"))
        source += f"import m{number}\ndef test_{number}(monkeypatch, tmp_path):\n    m = m{number}\n{body}"
        modules[f"m{number}.py"] = program.encode()
        names.append(f"tests/test_right.py::test_{number}")
    tests = RepositoryTests(tuple(names), (), {"tests/test_right.py": source.encode()}, apart=True)
    found = await grade_change(provider, BASE, {**BASE, **modules}, tests, seconds=60)
    assert {[*RIGHT][names.index(name)]: why for name, why in found.why.items()} == {}


#: What code under test tries with what a test hands it. Each returns what it reached, or raises.
REACHES = {
    "globals of a function": "def attack(f): return f.__globals__",
    "its code": "def attack(f): return f.__code__",
    "the list behind a method": "def attack(f): return f.__self__",
    "a format": "def attack(f): return '{0.__globals__}'.format(f)",
    "another attribute": "def attack(f): f.x = 1; return f.x",
    "a module of the tests": "def attack(f):\n  import apart\n  return apart",
    "any attribute by a message": (
        "import gc\ndef attack(f):\n  peer = [x for x in gc.get_objects() if type(x).__name__ == 'Peer'][0]\n"
        "  return peer.ask('get', 'text', 'format')"
    ),
    "an import by a message": (
        "import gc\ndef attack(f):\n  peer = [x for x in gc.get_objects() if type(x).__name__ == 'Peer'][0]\n"
        "  return peer.ask('module', 'os')"
    ),
}


@pytest.mark.parametrize("name", REACHES)
async def test_code_reaches_nothing_of_the_tests_but_what_it_was_given(provider: SandboxProvider, name: str):
    test = b"from shop.cart import attack\nimport pytest\ndef test_it():\n    seen = []\n"
    test += b"    with pytest.raises(Exception):\n        attack(lambda x: seen.append(x))\n"
    test += b"    assert attack.__name__ == 'attack'\n"
    tests = RepositoryTests(("tests/test_it.py::test_it",), (), {"tests/test_it.py": test}, False, True)
    found = await grade(provider, REACHES[name], tests)
    assert found.resolved, found.why


#: A test whose last assertion is wrong, and code that passed it through what the test handed over or imported.
CHEATS = {
    "the frame of a generator": (
        "assert attack(x for x in [1]) == 'test_it'",
        "def attack(g): return g.gi_frame.f_code.co_qualname.split('.')[0]",
    ),
    "the code of a coroutine": (
        "async def f(): return 'secret'\nc = f()\nassert attack(c) == 'secret'\nc.close()",
        "def attack(c): return c.cr_code.co_consts[-1]",
    ),
    "a module that a test hands over": (
        "import json\nassert attack(json) == 3",
        "def attack(m): return len(m.dumps(100))",
    ),
    "a fixture of pytest": (
        "p = pytest.MonkeyPatch()\nattack(p)\nassert m.limit() == 3",
        "def limit(): return 0\ndef attack(p): p.setattr('shop.cart.limit', lambda: 3)",
    ),
    "the assertions of a mock": (
        "from unittest.mock import Mock\nf = Mock()\nattack(f)\nf.assert_called_once_with(5)",
        "def attack(f): f.configure_mock(assert_called_once_with=lambda *_: None)",
    ),
    "an order over plain values": (
        "limit = max([3])\nassert attack(0) < limit\nassert attack(0) > 2 * limit",
        "class Any:\n  __lt__ = __gt__ = lambda *_: True\ndef attack(x): return Any()",
    ),
    "a module of Python that a test imports late": (
        "import colorsys\nassert colorsys.rgb_to_hsv(1, 2, 3) == attack(0)",
        "import sys, types\nm = sys.modules['colorsys'] = types.ModuleType('colorsys')\n"
        "m.rgb_to_hsv = lambda *_: 5\ndef attack(x): return 5",
    ),
}


@pytest.mark.parametrize("name", CHEATS)
async def test_what_a_test_hands_over_or_imports_gives_the_code_no_say_in_its_verdict(
    provider: SandboxProvider, name: str
):
    body, program = CHEATS[name]
    lines = "".join(f"    {line}\n" for line in body.split("\n"))
    test = f"import pytest\nimport shop.cart as m\nfrom shop.cart import attack\ndef test_it():\n{lines}"
    tests = RepositoryTests(("tests/test_it.py::test_it",), (), {"tests/test_it.py": test.encode()}, False, True)
    changed = {**BASE, "shop/cart.py": program.encode(), "colorsys.py": b""}
    found = await grade_change(provider, BASE, changed, tests, seconds=30)
    assert found.why == {"tests/test_it.py::test_it": "it failed"}
