"""The program that runs the tests inside a sandbox: pytest, with reports through a channel that carries a secret.

The host sends this file's text, so it imports nothing of ours. It holds no expected value (see `hidden.py`) and makes
no verdict. pytest is imported before any file of the repository, and the repository stands last on the path, so that
its files cannot take the place of Python's own modules or of the test tools.

The code under test shares this process, so it could reach into the test that calls it: by frames, by the garbage
collector, by a trace function, by new code for an old function. Python announces each of these to an audit hook, which
no code can remove. If a file that the model changed does one of them, the host hears of it first, and no test passes.
"""

from __future__ import annotations

import itertools
import json
import numbers
import os
import sys
import threading
import types
from collections.abc import ItemsView, KeysView
from decimal import Decimal
from typing import Any

LONGEST = 1 << 20  # bytes of one report
MOST_PARTS = 100_000  # of a collection in which a test looks for a value
DEEPEST = 12
REACHING = {
    *("sys._getframe", "sys._current_frames", "sys._current_exceptions", "sys.settrace", "sys.setprofile"),
    *("gc.get_objects", "gc.get_referrers", "gc.get_referents", "sys.addaudithook"),
    *("sys.monitoring.register_callback", "ctypes.dlopen", "ctypes.dlsym", "ctypes.cdata", "code.__new__"),
}
#: Attributes of frames and functions: to read a frame, and to give a function other code.
READ, WRITTEN = {"tb_frame", "gi_frame", "cr_frame", "ag_frame"}, {"__code__", "__defaults__", "__kwdefaults__"}
PASSED_ON = {"currentframe", "walk_tb", "walk_stack"}  # functions of the standard library that hand a frame to others
FRAMEWORK = ("_pytest", "pytest", "pluggy", "unittest", "doctest", "builtins")


class ReportChannel:
    """Writes reports where only the host reads. A line without the secret is ignored there."""

    def __init__(self, secret: str) -> None:
        self.fd = os.dup(1)
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(2, 1)
        self.secret = secret

    def send(self, **report: Any) -> None:
        """Send one report in one write."""
        try:
            text = json.dumps(report)
        except (TypeError, ValueError, RecursionError):
            return
        line = f"\n{self.secret} {text}\n".encode("utf-8", "replace")
        if len(line) > LONGEST:
            line = f"\n{self.secret} {json.dumps({**report, 'value': {'other': 'too long'}})}\n".encode()
        while line:
            line = line[os.write(self.fd, line) :]


class Reporter:
    """A plugin of pytest that reports every test, and what a test measured."""

    def __init__(self, channel: ReportChannel) -> None:
        self.channel = channel
        self.test = ""
        self.outcomes: list[str] = []
        self.framework: dict[str, Any] = {}

    def pytest_sessionstart(self) -> None:
        """pytest has set itself up, and no file of the repository is imported but its own settings."""
        self.framework = fingerprint()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """A test begins."""
        self.test, self.outcomes = nodeid, []

    def pytest_runtest_logreport(self, report: Any) -> None:
        """A phase of a test ended."""
        expected_failure = hasattr(report, "wasxfail")
        self.outcomes.append("xfail" if expected_failure else report.outcome)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """A test ended."""
        if (name := changed(self.framework)) is not None:
            self.channel.send(tampered=name)
        passed = self.outcomes == ["passed"] * 3
        self.channel.send(test=nodeid, passed=passed, outcomes=self.outcomes)

    def check(self, number: int, value: Any, contains: bool = False) -> None:
        """Report a value. The host compares it with the expected value, or looks for that value in it."""
        reported = plain(value)
        if contains and "other" in reported:
            reported = plain(list(itertools.islice(value, MOST_PARTS)))
        self.channel.send(check=number, test=self.test, value=reported)

    def raises(self, number: int) -> Raises:
        """Report what a block raises."""
        return Raises(self, number)


class Raises:
    """Catches the exception of a block and reports the names of its classes."""

    def __init__(self, reporter: Reporter, number: int) -> None:
        import pytest

        self.reporter = reporter
        self.number = number
        self.info: Any = pytest.ExceptionInfo.for_later()

    def __enter__(self) -> Any:
        return self.info

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> bool:
        names = class_names(kind) if kind is not None else []
        self.reporter.channel.send(check=self.number, test=self.reporter.test, value=plain(names))
        if kind is None:
            return False
        self.info.fill_unfilled((kind, value, traceback))
        return issubclass(kind, (Exception, SystemExit, KeyboardInterrupt))


def class_names(kind: type) -> list[str]:
    """Every name of a class and of those above it, also those that modules give it: `IOError` is `OSError`."""
    above = {id(base) for base in kind.__mro__[:-1]}
    names = {base.__name__ for base in kind.__mro__}
    for module in list(sys.modules.values()):
        names.update(key for key, value in list(getattr(module, "__dict__", {}).items()) if id(value) in above)
    return sorted(name for name in names if isinstance(name, str))


def plain(value: Any, depth: int = 0) -> Any:
    """A value as JSON. Other values than plain data become `{"other": TYPE}`, which equals nothing."""
    if depth > DEEPEST:
        return {"other": "too deep"}
    if value is None or isinstance(value, bool):
        return {"value": value}
    if isinstance(value, str):
        return {"value": str.__str__(value)}
    if isinstance(value, int):
        return {"value": int.__add__(value, 0)}
    if isinstance(value, float):
        return {"float": float.__repr__(value)}
    if isinstance(value, (bytes, bytearray)):
        return {"bytes": bytes(value).hex()}
    if isinstance(value, numbers.Number):
        return plain_number(value)
    if isinstance(value, types.MappingProxyType):
        value = dict(value)
    if isinstance(value, (KeysView, ItemsView)):
        value = set(value)
    kinds: tuple[Any, ...] = (list, tuple, set, frozenset)
    for kind in kinds:
        if isinstance(value, kind):
            return {kind.__name__: [plain(part, depth + 1) for part in kind.__iter__(value)]}
    if isinstance(value, dict):
        return {"dict": [[plain(key, depth + 1), plain(part, depth + 1)] for key, part in dict.items(value)]}
    return {"other": type(value).__name__}


def plain_number(value: Any) -> Any:
    """A number of another kind as JSON."""
    if isinstance(value, Decimal):
        return {"decimal": Decimal.__str__(value)}
    if isinstance(value, numbers.Integral):
        return {"value": int(value)}
    if isinstance(value, numbers.Rational):
        return {"fraction": f"{int(value.numerator)}/{int(value.denominator)}"}
    if isinstance(value, numbers.Real):
        return {"float": float.__repr__(float(value))}
    return {"complex": complex.__str__(complex(value))} if isinstance(value, numbers.Complex) else {"other": "number"}


def guard(channel: ReportChannel, folder: str, changed_files: list[str]) -> None:
    """Report when a file that the model changed reaches into the code that calls it."""
    suspects = {os.path.join(folder, path) for path in changed_files}
    own, home = guard.__code__.co_filename, os.path.dirname(os.__file__)
    elsewhere = (path for path in sys.path if path and not path.startswith(folder))
    trusted = ("<frozen", home, sys.prefix, sys.base_prefix, *elsewhere)
    known = {os.path.join(root, name) for root, _, names in os.walk(folder) for name in names} - suspects
    known.add(own)
    frame_of, name_of, this_thread = sys._getframe, os.path.basename, threading.get_ident
    looking: set[int] = set()  # threads that are in the hook, where `frame_of` would call it again

    def is_trusted(name: Any) -> bool:
        return isinstance(name, str) and (name in known or name.startswith(trusted))

    def caller() -> str:
        frame: Any = frame_of(2)  # the hook's caller
        while frame is not None:
            code = frame.f_code
            passes = name_of(code.co_filename) == "inspect.py" or code.co_name in PASSED_ON
            if not (passes and code.co_filename.startswith(home)):
                return str(code.co_filename)
            frame = frame.f_back
        return "<frozen"

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in REACHING:
            reaches = True
        elif event == "object.__getattr__":
            reaches = arguments[1] in READ
        elif event == "object.__setattr__":
            reaches = arguments[1] in WRITTEN
        elif event == "compile":  # code in the name of another file
            reaches = is_trusted(arguments[1])
        elif event == "open":  # memory, or the source of another file
            path, _, flags = arguments
            memory = isinstance(path, str) and path.startswith("/proc/") and path.endswith("/mem")
            writes = isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR)
            reaches = memory or bool(writes and isinstance(path, str) and os.path.abspath(path) in known)
        else:
            return
        if not reaches or this_thread() in looking:
            return
        looking.add(this_thread())
        try:
            if not is_trusted(caller()):
                channel.send(tampered=f"{event} was used by the code under test")
        finally:
            looking.discard(this_thread())

    if hasattr(sys, "addaudithook") and suspects:
        sys.addaudithook(hook)


def fingerprint() -> dict[str, Any]:
    """The functions of the test tools, by name."""
    functions: dict[str, Any] = {}
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] in FRAMEWORK:
            functions[name] = module
            for key, value in list(vars(module).items()):
                functions[f"{name}.{key}"] = code_of(value)
                if isinstance(value, type) and value.__module__ == name:
                    functions.update({f"{name}.{key}.{part}": code_of(method) for part, method in vars(value).items()})
    return {key: value for key, value in functions.items() if value is not None}


def code_of(value: Any) -> Any:
    """The part of a value that changes if the function is replaced."""
    if isinstance(value, types.FunctionType):
        return value.__code__
    return value if isinstance(value, (type, types.BuiltinFunctionType)) else None


def changed(before: dict[str, Any]) -> str | None:
    """The name of a function of the test tools that was replaced."""
    now = fingerprint()
    return next((name for name, value in before.items() if now.get(name) is not value), None)


def main() -> None:
    """Run the tests that the host names."""
    import pytest

    apart = None
    if len(sys.argv) > 1:  # the text of `apart.py`. The code's process starts before the secret is here
        apart = types.ModuleType("apart")
        exec(compile(sys.argv[1], "<apart>", "exec"), vars(apart))
        apart.fork_code()
    request = json.loads(sys.stdin.buffer.read())
    channel = ReportChannel(request["secret"])
    folder = os.path.join(os.environ["HOME"], request["folder"])
    os.chdir(folder)
    sys.dont_write_bytecode = True
    sys.pycache_prefix = os.path.join(os.devnull, request["secret"])  # no compiled file that the code leaves is read
    sys.path[:] = [path for path in sys.path if path not in ("", os.environ["HOME"], folder)]
    sys.path += [place for place in (folder, os.path.join(folder, "src")) if os.path.isdir(place)]
    for name in [name for name in os.environ if name.startswith("PYTEST_")]:
        del os.environ[name]
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    reporter = Reporter(channel)
    helpers = types.ModuleType(request["module"])
    vars(helpers).update(check=reporter.check, raises=reporter.raises)
    sys.modules[request["module"]] = helpers
    off = ("cacheprovider", "legacypath", "unraisableexception", "threadexception", "junitxml", "pastebin")
    options = ["-q", *(f"-pno:{name}" for name in off), "--import-mode=importlib", "--tb=line"]
    options += ["-c", request["settings"] or os.devnull, f"--rootdir={folder}", f"--confcutdir={folder}"]
    if apart is None:
        guard(channel, folder, request["changed"])
    else:
        times = apart.times_of(folder, request["own"])
        apart.begin(folder, request["own"])
    channel.send(started=True)  # no file of the repository has been imported yet
    pytest.main([*options, "--", *request["tests"]], plugins=[reporter])
    if apart is not None:
        if apart.times_of(folder, request["own"]) != times:
            channel.send(tampered="the files of the tests")
        channel.send(finished=True)


if __name__ == "__main__":
    main()
