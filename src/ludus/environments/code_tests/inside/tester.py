"""The process of the hidden tests. The function under test is a stand-in, whose calls another process answers.

The model's program runs in that other process and cannot reach this one: this process cannot be traced or read, its
files are no files of the file system, and only plain data comes back. So the outcome of a test is decided here.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import subprocess
import sys
import types
import unittest
from collections.abc import Callable
from functools import partial
from typing import Any

from ludus.environments.code_tests.inside.candidate import BOOT
from ludus.environments.code_tests.inside.crossing import CannotCross, Channel, decode, encode
from ludus.environments.code_tests.inside.foreign import Foreign, awaited, exception_of, is_of_program

PR_SET_DUMPABLE = 4


class ProgramEnded(Exception):
    """The program's process is gone, or sent an invalid reply."""


class Program:
    """The process of the model's program, as the tests see it."""

    def __init__(self, text: str, sources: list[str], changes: bool) -> None:
        command = [sys.executable, "-S", "-s", "-B", "-c", BOOT]
        calls, replies = os.pipe(), os.pipe()
        self._process = subprocess.Popen(command, stdin=calls[0], stdout=replies[1], stderr=subprocess.DEVNULL)
        os.close(calls[0])
        os.close(replies[1])
        self._channel = Channel(replies[0], calls[1])
        self._sources, self._text, self._changes = sources, text, changes
        self.known: dict[str, Any] = {}  #: the names of the context, which the program has too

    def start(self) -> None:
        """Run the program's top level. Raises what it raises."""
        self._channel.send_text(self._text)
        self._ask(self._sources)

    def function(self, name: str) -> Callable[..., Any]:
        """A stand-in for a function of the program."""

        def stand_in(*arguments: Any, **named: Any) -> Any:
            sent = [encode(argument) for argument in arguments]
            reply = self._ask(["call", name, sent, {key: encode(value) for key, value in named.items()}])
            for argument, after in zip(arguments, reply.get("arguments") or (), strict=False):
                if after is not None and self._changes:
                    _change(argument, self.value(after))
            return self.value(reply.get("value"))

        stand_in.__name__ = stand_in.__qualname__ = name
        return stand_in

    def value(self, data: Any) -> Any:
        """A value that the program returned."""
        try:
            return decode(data, self._object)
        except (ValueError, TypeError, LookupError, ArithmeticError, RecursionError) as error:
            raise ProgramEnded(f"the program sent what is no value: {error!r:.100}") from None

    def ask(self, operation: str, number: int, *rest: str) -> dict[str, Any]:
        """Do something with an object of the program."""
        return self._ask([operation, number, *rest])

    def _object(self, number: int, kind: str) -> Any:
        return awaited(self, number) if kind == "coroutine" else Foreign(self, number, kind)

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.wait()

    def _ask(self, message: Any) -> dict[str, Any]:
        try:
            self._channel.send(message)
            reply = self._channel.receive()
        except (OSError, EOFError, ValueError, RecursionError):
            self._process.kill()
            raise ProgramEnded(f"the program ended: exit code {self._process.wait()}") from None
        if not isinstance(reply, dict):
            raise ProgramEnded("the program sent what is no reply")
        if "raised" in reply:
            raise exception_of(reply, self.known)
        return reply


class Report(unittest.TestResult):
    """Tells the outcome of each test as it ends."""

    def __init__(self, tell: Callable[[str, str, str], None]) -> None:
        super().__init__()
        self._tell = tell

    def addSuccess(self, test: unittest.TestCase) -> None:
        """A test passed."""
        self._tell(_name(test), "passed", "")

    def addFailure(self, test: Any, error: Any) -> None:
        """A test failed."""
        self.addError(test, error)

    def addError(self, test: Any, error: Any) -> None:
        """A test, or what sets it up, raised an exception."""
        self._tell(_name(test), *outcome_of(error[1]))

    def addSkip(self, test: Any, reason: str) -> None:
        """A test that did not run has not passed."""
        self._tell(_name(test), "skipped", reason)

    def addExpectedFailure(self, test: Any, error: Any) -> None:
        """A test that failed as it says."""
        self._tell(_name(test), "passed", "")

    def addUnexpectedSuccess(self, test: Any) -> None:
        """A test that should have failed."""
        self._tell(_name(test), "wrong", "it should have failed")

    def addSubTest(self, test: Any, subtest: Any, error: Any) -> None:
        """A part of a test ended."""
        if error is not None:
            self._tell(_name(test), *outcome_of(error[1]))


def outcome_of(error: BaseException) -> tuple[str, str]:
    """What an exception says about a test, and its text."""
    try:
        text = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    except CannotCross as other:  # the text shows an object of the program
        text = f"{type(error).__name__}, and {other}"[:300]
    if isinstance(error, CannotCross) or (isinstance(error, NameError) and not is_of_program(error)):
        return "cannot_judge", text
    return ("wrong" if isinstance(error, AssertionError) else "error"), text


def run_tests(asked: dict[str, Any], program: Program, tell: Callable[[str, str, str], None]) -> None:
    """Run all tests of a row: asserts one by one, test cases, a function `check`, or a script."""
    module = sys.modules["__main__"] = types.ModuleType("__main__")
    names = vars(module)
    if asked["context"]:
        exec(compile(asked["context"], "context", "exec", dont_inherit=True), names)
    program.known = dict(names)
    unittest.main = unittest.TestProgram = lambda *_, **__: None  # type: ignore[assignment,misc]  # we run the cases
    functions = {name: program.function(name) for name in asked["names"]}
    names.update(functions, candidate=functions[asked["names"][0]])
    for number, line in enumerate(asked["asserts"]):
        one_test(f"assert {number}", partial(exec, line, names), tell)
    if not asked["test"]:
        return
    before = set(names)
    script = outcome(lambda: exec(compile(asked["test"], "tests", "exec", dont_inherit=True), names))
    cases = [value for key, value in names.items() if key not in before and _is_case(value)]
    if script is not None or not (cases or callable(names.get("check"))):
        tell("tests", *(script or ("passed", "")))
        return
    if callable(names.get("check")) and not cases:
        one_test("check", lambda: names["check"](names["candidate"]), tell)
    for case in cases:
        suite = unittest.TestSuite(case(method) for method in unittest.TestLoader().getTestCaseNames(case))
        suite.run(Report(tell))


def one_test(name: str, test: Callable[[], Any], tell: Callable[[str, str, str], None]) -> None:
    """Run a test that raises if it fails."""
    tell(name, *(outcome(test) or ("passed", "")))


def outcome(test: Callable[[], Any]) -> tuple[str, str] | None:
    """How code failed, or None."""
    try:
        test()
    except unittest.SkipTest as error:
        return "skipped", str(error)
    except BaseException as error:
        return outcome_of(error)
    return None


def main(text: str) -> None:
    """Hide this process, then read the tests and run them."""
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
    results = os.dup(1)
    asked = json.loads(sys.stdin.buffer.read())
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    sys.path[:] = [path for path in sys.path if path not in ("", ".", os.getcwd())]  # the program can write there
    resource.setrlimit(resource.RLIMIT_CPU, (asked["cpu"], asked["cpu"] + 1))

    def tell(*result: str) -> None:
        os.write(results, (json.dumps(result) + "\n").encode())

    program = Program(text, asked["sources"], asked["changes"])
    try:
        failed = outcome(program.start)
        if failed is not None:
            tell("program", *failed)
        else:
            run_tests(asked, program, tell)
    except BaseException as error:
        tell("tests", *outcome_of(error))
    finally:
        program.close()
    tell("end", "", "")


def _change(argument: Any, after: Any) -> None:
    """Apply the program's changes to an argument."""
    if isinstance(argument, list) and isinstance(after, list):
        argument[:] = after
    elif isinstance(argument, (dict, set)) and isinstance(after, type(argument)):
        argument.clear()
        argument.update(after)


def _is_case(value: Any) -> bool:
    return isinstance(value, type) and issubclass(value, unittest.TestCase)


def _name(test: Any) -> str:
    return str(getattr(test, "_testMethodName", None) or test)
