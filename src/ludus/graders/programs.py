"""Untrusted programs, run on one input at a time in a sandbox.

A program gets its input and nothing else: the expected output never enters the sandbox, and the comparison happens
outside. Each input gets a process of its own, and a Python program finds no files of earlier inputs. Time is CPU time,
so that a busy machine does not turn a right answer into a wrong one. A program that waits past its limit is too slow as
well: the time that a busy machine costs it is allowed for (`Submission.waits_too_long`).
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any, ClassVar

from ludus.errors import Failure
from ludus.sandbox import ExecResult, Sandbox, SandboxLimits, SandboxSpec

#: Modules that every Python program here finds imported already, which saves their import in each process.
PRELOAD = (
    *("bisect", "collections", "copy", "datetime", "functools", "heapq", "io", "itertools", "json", "math", "operator"),
    *("random", "re", "resource", "statistics", "string", "threading", "typing"),
)

#: The sandbox that these programs run in. It prints as much as the largest expected outputs of known datasets.
SPEC = SandboxSpec(limits=SandboxLimits(output_bytes=16 << 20), preload=PRELOAD)

#: How deep Python programs may recurse, and how large their stack may grow.
_RECURSION, _STACK = 50_000, 512 << 20

_COMPILE_SECONDS = 60.0

_LIMITS = """
    import os, resource, sys
    for place in (".", "/tmp", "/dev/shm") if os.getppid() == 1 else (".",):
        for name in os.listdir(place):
            import shutil
            path = os.path.join(place, name)
            if os.path.islink(path) or not os.path.isdir(path):
                os.unlink(path)
            else:
                os.chmod(path, 0o700)
                shutil.rmtree(path, True)
    resource.setrlimit(resource.RLIMIT_CPU, ({cpu}, {cpu} + 1))
    hard = resource.getrlimit(resource.RLIMIT_STACK)[1]
    resource.setrlimit(resource.RLIMIT_STACK, (@stack if hard < 0 else min(@stack, hard), hard))
    sys.setrecursionlimit(@recursion)
    main = vars(sys.modules["__main__"])
    del main["_run"]
""".replace("@stack", str(_STACK)).replace("@recursion", str(_RECURSION))

_PROGRAM = f"""def _run():
{_LIMITS}
    try:
        exec(compile({{source!r}}, "main.py", "exec", dont_inherit=True), main)
    except SystemExit:
        pass
_run()
"""

#: A solution may use the names of these modules without an import, as on the sites such tasks come from. They are added
#: to the built-ins, so that none of them passes for the function that the solution must define.
_FUNCTION = f"""def _run():
{_LIMITS}
    import builtins, json
    answer = os.dup(1)
    os.dup2(2, 1)
    arguments = json.loads(sys.stdin.buffer.read())
    dumps, names = json.dumps, dict(vars(builtins))
    for module in ("typing", "collections", "heapq", "bisect", "itertools", "functools", "operator", "string", "math"):
        module = __import__(module)
        names.setdefault(module.__name__, module)
        for name in getattr(module, "__all__", None) or dir(module):
            if not name.startswith("_"):
                names.setdefault(name, getattr(module, name))
    main["__builtins__"] = names
    exec(compile({{source!r}}, "main.py", "exec", dont_inherit=True), main)
    solution = main.get("Solution")
    if isinstance(solution, type) and hasattr(solution, {{name!r}}):
        function = getattr(solution(), {{name!r}})
    elif {{name!r}} in main:
        function = main[{{name!r}}]
    else:
        raise NameError("the program does not define " + {{name!r}})
    value = function(*arguments)
    def plain(part):  # a number of numpy, which equals the number that it holds
        if getattr(part, "shape", None) != () or not hasattr(part, "tolist"):
            raise TypeError(type(part))
        return part.tolist()
    try:
        text = '{{{{"value": ' + dumps(value, default=plain) + '}}}}'
    except (TypeError, ValueError, RecursionError):
        text = dumps({{{{"not_json": f"{{{{value!r:.300}}}}"}}}})
    with open(answer, "w") as file:
        file.write(text)
_run()
"""


@dataclass(frozen=True)
class Submission:
    """A program in one language. Subclasses know how to get it ready and how to run it."""

    source: str
    seconds: float  #: of CPU time for each input

    needs: ClassVar[str | None] = None  #: a command that must be in the sandbox

    async def prepare(self, sandbox: Sandbox) -> str | None:
        """Get ready. Returns why that is impossible, such as the compiler's message, or None."""
        return None

    async def run(self, sandbox: Sandbox, stdin: str) -> ExecResult:
        """Run the program on one input."""
        raise NotImplementedError

    @property
    def wall(self) -> float:
        """The wall-clock limit: other programs share the cores."""
        return 3 * self.seconds + 2

    def waits_too_long(self, result: ExecResult) -> bool:
        """Whether a run slept past its limit: even on a core that it shares with three others, it was idle."""
        return result.seconds > self.seconds + 3 * result.cpu_seconds + 2

    @property
    def cpu(self) -> int:
        """The CPU time after which the kernel ends the program."""
        return max(1, math.ceil(self.seconds))

    def problem(self, result: ExecResult) -> str | None:
        """Why a run gave no output to compare, or None."""
        if self.too_slow(result):
            return f"more than {self.seconds:g} s" if not result.timed_out else result.why
        if result.output_cut:
            return "it wrote more than its output limit"
        return None if result.ok else f"{result.why}{_last_line(result)}"

    def too_slow(self, result: ExecResult) -> bool:
        """Whether a run passed its time limit."""
        return result.timed_out or result.cpu_seconds > self.seconds or self.waits_too_long(result)


_NODE = re.compile(r"Node\.js v\d[\w.-]*")
_THROWN = re.compile(r"(Uncaught )?[A-Z]\w*(Error|Exception)\b")


class PythonProgram(Submission):
    """A Python program that reads standard input and prints. `sys.exit` in it is an ordinary end."""

    async def run(self, sandbox: Sandbox, stdin: str) -> ExecResult:
        """Run it in a fork of the warm interpreter."""
        source = _PROGRAM.format(cpu=self.cpu, source=self.source)
        return await sandbox.python(source, stdin=_bytes(stdin), timeout=self.wall)


@dataclass(frozen=True)
class PythonFunction(Submission):
    """A Python function, or a method of `class Solution`. The input is a JSON list of arguments."""

    name: str

    async def run(self, sandbox: Sandbox, stdin: str) -> ExecResult:
        """Call the function; stdout of the result holds the returned value alone (see `returned`)."""
        source = _FUNCTION.format(cpu=self.cpu, source=self.source, name=self.name)
        return await sandbox.python(source, stdin=_bytes(stdin), timeout=self.wall)


class CppProgram(Submission):
    """A C++ program, compiled once."""

    needs = "g++"

    async def prepare(self, sandbox: Sandbox) -> str | None:
        """Compile it."""
        await sandbox.write("main.cpp", _bytes(self.source))
        command = ["g++", "-O2", "-std=c++17", "-pipe", "-o", "main", "main.cpp"]
        result = await sandbox.exec(command, timeout=_COMPILE_SECONDS)
        if result.ok:
            return None
        errors = [line for line in result.stderr.decode(errors="replace").splitlines() if "error" in line]
        return f"it does not compile: {errors[0] if errors else result.why:.300}"

    async def run(self, sandbox: Sandbox, stdin: str) -> ExecResult:
        """Run the compiled program."""
        return await sandbox.exec(_limited(self.cpu, "./main"), stdin=_bytes(stdin), timeout=self.wall)


class JavaScriptProgram(Submission):
    """A JavaScript program for Node."""

    needs = "node"

    async def prepare(self, sandbox: Sandbox) -> str | None:
        """Write the file."""
        await sandbox.write("main.js", _bytes(self.source))
        return None

    async def run(self, sandbox: Sandbox, stdin: str) -> ExecResult:
        """Run it with Node."""
        command = _limited(self.cpu, "node --stack-size=50000 main.js")
        return await sandbox.exec(command, stdin=_bytes(stdin), timeout=self.wall)


#: The languages of programs that read standard input.
LANGUAGES: dict[str, type[Submission]] = {"python": PythonProgram, "cpp": CppProgram, "javascript": JavaScriptProgram}


async def require(sandbox: Sandbox, kind: type[Submission]) -> None:
    """Raise a failure if the compiler or the interpreter of a language is not in the sandbox."""
    if kind.needs is not None and not (await sandbox.exec(["sh", "-c", f"command -v {kind.needs}"])).ok:
        raise Failure("no_compiler", f"{kind.needs} is not in the sandbox: install it on this machine")


def returned(result: ExecResult) -> dict[str, Any]:
    """What a `PythonFunction` returned: `{"value": ...}`, or `{"not_json": text}` if it is no JSON value.

    A program may write anything here. It gains nothing: it does not know the expected value.
    """
    try:
        value = json.loads(result.stdout)
        if isinstance(value, dict) and ("value" in value or "not_json" in value):
            return value
    except (ValueError, RecursionError):
        pass
    return {"not_json": result.text[:300]}


def _limited(cpu: int, command: str) -> list[str]:
    """A command with limits that it cannot raise. It can catch the signal of the soft limit, not of the hard limit."""
    stack = "ulimit -S -s unlimited 2>/dev/null || ulimit -S -s $(ulimit -H -s)"
    return ["sh", "-c", f"{stack}; ulimit -S -t {cpu}; ulimit -H -t {cpu + 1}; exec {command}"]


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogatepass")


def _last_line(result: ExecResult) -> str:
    """The last line of stderr, without what Node writes after an exception: stack, fields, version."""
    lines = re.split(r"\s*\n\s*", result.stderr[-2000:].decode(errors="replace").strip())
    last = lines[-1]
    if _NODE.fullmatch(last):
        said = [line for line in lines[:-1] if line and not line.startswith("at ")]
        thrown = [line for line in said if _THROWN.match(line)]
        last = (thrown or said or [""])[-1]
    return f": {last:.300}" if last else ""
