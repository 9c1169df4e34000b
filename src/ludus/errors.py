"""What can go wrong: a `UserError` is a mistake that a user can fix, a `Failure` is why a rollout has no reward."""

from __future__ import annotations

import asyncio
import difflib
import json
import os
import sysconfig
import traceback
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, distribution
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

#: What Ludus is called where packages are installed from.
DISTRIBUTION = "ludus-gym"


class UserError(Exception):
    """Shown as one line without a traceback. `hint` is what to do about it."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(f"{message}. {hint}" if hint else message)


class MissingExtra(UserError):
    """An optional part is not installed."""


def missing_extra(what: str, extra: str) -> MissingExtra:
    """The error for an optional part that is not installed: `missing_extra("math-verify", "math")`."""
    return MissingExtra(f"{what} is not installed", f"Install it with: {install_command(extra)}")


def install_command(extra: str) -> str:
    """What to type for an extra of Ludus, depending on how this copy was installed.

    `ludus` on PyPI is another project, so the name of our distribution is written out.
    """
    try:
        origin = json.loads(distribution(DISTRIBUTION).read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        origin = {}
    if origin.get("dir_info", {}).get("editable"):
        checkout = unquote(urlsplit(origin["url"]).path)
        return f"pip install -e '{'.' if checkout == os.getcwd() else checkout}[{extra}]'"
    return f"pip install '{DISTRIBUTION}[{extra}]'"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A hint that names the nearest known word, or all of them when nothing is near."""
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.6)
    return f"Did you mean {close[0]}?" if close else f"Known: {', '.join(names) or 'none'}."


Stage = Literal["open", "model", "tool", "user", "verify", "close", "agent"]


class Interrupt(BaseException):
    """The end of acting, asked for from within a step (a person has seen enough). It passes through any agent's own
    handling of errors, and is caught by whoever knows it."""


#: What goes on its way through any step. Everything else that code of others raises ends its own rollout: `exit()` too,
#: and what a panic in an extension becomes.
INTERRUPTS = (KeyboardInterrupt, GeneratorExit, asyncio.CancelledError, Interrupt)

_HERE = os.path.dirname(os.path.abspath(__file__))
_ENVIRONMENTS = os.path.join(_HERE, "environments", "")
_LIBRARIES = ("<", _HERE, *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")))

#: The cause where a step met a cancellation that nobody asked of it.
STRAY_CANCEL = "CancelledError: something that it waited for was cancelled"


#: Failures that every rollout of a run would share, and what to do about them.
REMEDIES = {
    "http_401": "Check the key, which comes from the environment or env.yaml",
    "http_403": "Check what the key may do",
    "http_404": "Check the URL and the model's name",
    "refused": "Start the server, or correct its URL",
    "no_judge": "",
}


class Failure(Exception):
    """Why a rollout has no reward: what kind of failure, its first cause, and the stage it happened in.

    Code that knows better than "it crashed" raises one with a kind; the stage is filled in by the step
    of the lifecycle that was running, so that a judge's dead server is a failure of `verify`.

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
        """What a child process raised arrives here with its kind."""
        return _failure, (self.kind, self.cause, self.stage, self.where)

    @classmethod
    def of(cls, error: BaseException, stage: Stage) -> Failure:
        """Classify any exception raised while `stage` was running. A `Failure` keeps what it knows."""
        if isinstance(error, Failure):
            error.stage = error.stage or stage
            return error
        if isinstance(error, TimeoutError):
            return cls("timeout", str(error) or "it took too long", stage=stage, where=_where(error))
        if isinstance(error, ConnectionRefusedError):
            return cls("refused", str(error), stage=stage, where=_where(error))
        if isinstance(error, asyncio.CancelledError):
            return cls("crash", STRAY_CANCEL, stage=stage, where=_where(error))
        return cls("crash", _first_cause(error), stage=stage, where=_where(error))


def _failure(kind: str, cause: str, stage: Stage | None, where: str | None) -> Failure:
    return Failure(kind, cause, stage=stage, where=where)


def _first_cause(error: BaseException) -> str:
    first = error
    while first.__cause__ is not None and first.__cause__ is not first:  # one that was raised again may be its own
        first = first.__cause__
    text = f"{type(error).__name__}: {error}"
    return text if first is error else f"{text} (first cause: {type(first).__name__}: {first})"


def _where(error: BaseException) -> str | None:
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return None
    written = [frame for frame in frames if _is_authors(frame.filename)]
    frame = (written or frames)[-1]
    name = frame.filename.replace("\\", "/").rsplit("/", 1)[-1]
    return f"{name}:{frame.lineno} in {frame.name}"


def _is_authors(filename: str) -> bool:
    """Whether a file is an environment's or the user's, and not Python's, ours or another package's."""
    return filename.startswith(_ENVIRONMENTS) or not filename.startswith(_LIBRARIES)
