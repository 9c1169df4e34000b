"""What can go wrong: a `UserError` is a mistake that a user can fix, a `Failure` is why a rollout has no reward."""

from __future__ import annotations

import difflib
import errno
import functools
import inspect
import json
import os
import pkgutil
import re
import shlex
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterable
from types import CodeType
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

#: The name of Ludus on PyPI.
DISTRIBUTION = "ludus-gym"


def sentences(first: str, second: str) -> str:
    """Two sentences as one text. The first may end with a full stop already, if a server wrote it."""
    return f"{first}{'' if first.endswith(('.', '!', '?')) else '.'} {second}"


class UserError(Exception):
    """A mistake that the user can fix, shown as one line without a traceback. `hint` says how to fix it."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(sentences(message, hint) if hint else message)


class AuthorError(UserError):
    """Code that an author wrote raised. Its traceback helps: the command line offers `--debug`."""


class MissingExtra(UserError):
    """An optional part is not installed."""


def missing_extra(what: str, extra: str, *, package: str = "") -> MissingExtra:
    """The error for an optional part that is not installed: `missing_extra("math-verify", "math")`.

    `package` has the extra if the core does not.
    """
    return MissingExtra(f"{what} is not installed", f"Install it with: {install_command(extra, package=package)}")


def missing_package(what: str, package: str) -> MissingExtra:
    """The error for a part in a package of ours that is not installed: `missing_package("ludus bench", "bench")`."""
    return MissingExtra(f"{what} is in another package", f"Install it with: {install_command(package=package)}")


def install_command(extra: str = "", *, package: str = "") -> str:
    """The command that installs an extra, or a package of ours (a folder in `packages/`), or an extra of that package.

    It depends on how this copy was installed, and names the distribution, because `ludus` on PyPI is another project.
    """
    from importlib.metadata import PackageNotFoundError, distribution  # takes longer than all else here

    try:
        origin = json.loads(distribution(DISTRIBUTION).read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        origin = {}
    if origin.get("dir_info", {}).get("editable"):
        checkout = unquote(urlsplit(origin["url"]).path)
        source = "." if checkout == os.getcwd() else checkout
        command, target = "pip install -e", f"{source}/packages/{package}" if package else source
    else:
        command, target = "pip install", f"ludus-{package}" if package else DISTRIBUTION
    return f"{command} {shlex.quote(f'{target}[{extra}]' if extra else target)}"


def not_installed(module: str, where: str = "", hint: str = "") -> MissingExtra:
    """The error for a module that author's code imports and that is not installed; `where` is the importing line.

    Unless the module belongs to an extra of Ludus, no package is named to install: the name may be misspelled, and
    somebody may have published malicious code under the misspelled name.
    """
    return MissingExtra(f"{f'{where}: ' if where else ''}{module} is not installed", hint or _install_hint(module))


@functools.lru_cache(maxsize=64)  # all rollouts of a run may lack the same module
def _install_hint(module: str) -> str:
    name, _, inner = module.partition(".")
    if inner and sys.modules.get(name) is not None:
        return f"{name} is installed, but it has no {inner}"
    extra = _extras().get(_normal(name))
    if extra is not None:
        return f"Install it with: {install_command(extra)}"
    known = {*sys.stdlib_module_names, *(module.name for module in pkgutil.iter_modules()), *_extras()}
    near = sorted(word for word in known if abs(len(word) - len(name)) <= 1)
    if close := difflib.get_close_matches(name, near, n=5, cutoff=0.75):
        return f"Did you mean {next((word for word in close if word[0] == name[0]), close[0])}?"
    return "Correct the name, or install the package that provides it"


@functools.cache
def _extras() -> dict[str, str]:
    """The extra of Ludus that installs a package, by the package's name."""
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        lines = distribution(DISTRIBUTION).requires or []
    except PackageNotFoundError:
        lines = []
    extras: dict[str, str] = {}
    for line in lines:
        name, extra = re.match(r"[\w.-]+", line), re.search(r"extra == ['\"]([\w-]+)['\"]", line)
        if name is not None and extra is not None and extra[1] not in ("dev", "docs"):
            extras.setdefault(_normal(name[0]), extra[1])
    return extras


def _normal(name: str) -> str:
    return name.lower().replace("-", "_")


def cannot_read(what: object, error: OSError) -> UserError:
    """The error for a file that cannot be read, with what to do about it: `cannot_read(path, error)`."""
    hints = {
        errno.ENOENT: "Check the path",
        errno.EISDIR: "Name a file, not a folder",
        errno.ENXIO: "Put a file in its place",
        errno.EACCES: "Give yourself the right to read it (chmod u+r)",
    }
    hint = hints.get(error.errno or 0, "Check the disk and the path")
    return UserError(f"cannot read {what}: {error.strerror or error}", hint)


#: More known words than these are not listed in an error.
_LISTED = 25


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A hint that names the most similar known word. If none is similar: all of them, or the closest of many."""
    names = sorted(known)
    if close := difflib.get_close_matches(word, names, n=1, cutoff=0.6):
        return f"Did you mean {close[0]}?"
    if len(names) <= _LISTED:
        return f"Known: {', '.join(names) or 'none'}."
    return f"The closest of {len(names)}: {', '.join(difflib.get_close_matches(word[:80], names, n=3, cutoff=0))}."


Stage = Literal["open", "model", "tool", "user", "verify", "close", "agent"]


class Interrupt(BaseException):
    """Raised inside a step to end acting early, as when a person ends a rollout in `ludus chat`. No `except Exception`
    of an agent catches it. Subclass it, and catch your subclass around `act`."""


_HERE = os.path.dirname(os.path.abspath(__file__))
_ENVIRONMENTS = os.path.join(_HERE, "environments", "")
_LIBRARIES = ("<", _HERE, *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")))

#: The cause of a step that raised CancelledError although its task was not cancelled. Models read it too.
STRAY_CANCEL = "CancelledError: something that it waited for was cancelled"


#: What asyncio says to a method that starts an event loop while one runs.
_SECOND_LOOP = re.compile(r"asyncio\.run\(\) cannot be called|This event loop is already running|Cannot run the event")


class Failure(Exception):
    """Why a rollout has no reward: the kind of failure, its first cause, and the stage in which it happened.

    Raise one where you know a better kind than `crash`; `runtime/failure_kinds.py` lists all. The step that was running
    fills in the stage: if a judge's server is down, that is a failure of `verify`.

        raise Failure("http_429", "the judge answered 429: slow down")
    """

    def __init__(self, kind: str, cause: str, *, stage: Stage | None = None, where: str | None = None) -> None:
        super().__init__(cause)
        self.kind = kind
        self.cause = cause
        self.stage = stage
        self.where = where

    def __str__(self) -> str:
        return f"{self.stage or 'rollout'}: {self.kind}: {self.cause}"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle all fields, so that a failure in a child process arrives here complete."""
        return _failure, (self.kind, self.cause, self.stage, self.where)

    @classmethod
    def of(cls, error: BaseException, stage: Stage) -> Failure:
        """Classify any exception raised while `stage` was running. A `Failure` keeps its kind and its cause."""
        from asyncio import CancelledError  # a third of the time in which a command starts

        if isinstance(error, Failure):
            error.stage = error.stage or stage
            if error.kind == "bad_verdict":  # made by an author's code: Verdict("yes")
                error.where = error.where or _place(_author_frames(error))
            return error
        if isinstance(error, TimeoutError):
            return cls("timeout", str(error) or "it took too long", stage=stage, where=place_of_error(error))
        if isinstance(error, ConnectionRefusedError):
            return cls("refused", str(error), stage=stage, where=place_of_error(error))
        if isinstance(error, CancelledError):
            return cls("crash", STRAY_CANCEL, stage=stage, where=place_of_error(error))
        if isinstance(error, MissingExtra):
            return cls("not_installed", str(error), stage=stage, where=place_of_error(error))
        if isinstance(error, ModuleNotFoundError) and isinstance(error.name, str) and error.name:
            return cls("not_installed", str(not_installed(error.name[:80])), stage=stage, where=place_of_error(error))
        return cls("crash", _first_cause(error), stage=stage, where=place_of_error(error))


def _failure(kind: str, cause: str, stage: Stage | None, where: str | None) -> Failure:
    return Failure(kind, cause, stage=stage, where=where)


def _first_cause(error: BaseException) -> str:
    first = error
    while first.__cause__ is not None and first.__cause__ is not first:  # an exception may be its own cause
        first = first.__cause__
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, RuntimeError) and _SECOND_LOOP.match(str(error)):
        return f"{text}. Write `await` in an `async def` method instead, or make the method a plain `def`"
    return text if first is error else f"{text} (first cause: {type(first).__name__}: {first})"


def place_of_error(error: BaseException) -> str | None:
    """Where an exception was raised, such as `resources.py:31 in look_up`: the deepest line of an author's code.

    The file is named without its folder, so that the text may leave this machine.
    """
    return _place(_author_frames(error) or _frames(error))


def _frames(error: BaseException) -> list[tuple[CodeType, int]]:
    return [(frame.f_code, line) for frame, line in traceback.walk_tb(error.__traceback__)]


def _author_frames(error: BaseException) -> list[tuple[CodeType, int]]:
    return [(code, line) for code, line in _frames(error) if is_author_code(code.co_filename)]


def _place(frames: list[tuple[CodeType, int]]) -> str | None:
    return f"{_file_name(frames[-1][0])}:{frames[-1][1]} in {frames[-1][0].co_name}" if frames else None


def defined_at(function: Callable[..., Any] | None) -> str | None:
    """Where a function is defined, in the words of `place_of_error`."""
    code = getattr(inspect.unwrap(function), "__code__", None) if function is not None else None
    return _place([(code, code.co_firstlineno)]) if code is not None else None


def _file_name(code: CodeType) -> str:
    return code.co_filename.replace("\\", "/").rsplit("/", 1)[-1]


def is_author_code(filename: str) -> bool:
    """Whether a file belongs to an environment or to the user, and not to Python, Ludus or another package."""
    return filename.startswith(_ENVIRONMENTS) or not filename.startswith(_LIBRARIES)
