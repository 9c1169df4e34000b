"""How a rollout ends.

A rollout is completed, failed or masked, and nothing else. A reward exists only where a verifier
returned one: a crash, a dead judge or a timeout is a `Failure` with a stage, a kind and a cause, never a 0.
"""

from __future__ import annotations

import asyncio
import math
import os
import sysconfig
import traceback
from enum import StrEnum
from numbers import Real
from typing import Any, Literal

from ludus.record import NAMES, RECORD

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

#: Fields of a record that a value of a verdict would be lost under, or would hide.
TAKEN = RECORD | NAMES


class Outcome(StrEnum):
    """The three ends of a rollout; counts of the three always add up to what was dispatched."""

    COMPLETED = "completed"
    FAILED = "failed"
    MASKED = "masked"


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


class Verdict:
    """What a verifier found: a reward, and named values that become fields of the rollout and metrics.

    `components` are named parts of the reward, `turn_rewards` one number per model call, and `mask`
    says why this rollout must not be trained on although it was judged.

        Verdict(1.0, extracted_answer="B")
    """

    __slots__ = ("components", "mask", "reward", "turn_rewards", "values")

    def __init__(
        self,
        reward: float,
        *,
        components: dict[str, float] | None = None,
        turn_rewards: list[float] | None = None,
        mask: str | None = None,
        **values: Any,
    ) -> None:
        self.reward = _finite(reward)
        self.components = {name: _finite(part) for name, part in components.items()} if components else {}
        self.turn_rewards = [_finite(part) for part in turn_rewards] if turn_rewards else []
        self.mask = mask
        self.values = values

    def __repr__(self) -> str:
        return f"Verdict({self.reward}, {self.values})"

    @classmethod
    def of(cls, value: Any) -> Verdict:
        """Accept what `verify` may return: a number or a `Verdict`. Anything else is not a reward.

        A value that is called like a field of the record would be lost there, and is refused.
        """
        if not isinstance(value, Verdict):
            return cls(value)
        if value.values and not TAKEN.isdisjoint(value.values):
            name = min(TAKEN.intersection(value.values))
            raise Failure("bad_verdict", f"the record has a field {name} of its own: call this value something else")
        return value


def _failure(kind: str, cause: str, stage: Stage | None, where: str | None) -> Failure:
    return Failure(kind, cause, stage=stage, where=where)


def _finite(value: Any) -> float:
    if value.__class__ is float and math.isfinite(value):
        return value
    try:
        if not isinstance(value, Real) and hasattr(value, "item"):
            value = value.item()  # a NumPy scalar that is no number to Python, or a tensor of one number
        if isinstance(value, Real) and math.isfinite(number := float(value)):
            return number
    except (ArithmeticError, RuntimeError, TypeError, ValueError):
        pass  # an integer that no float can hold, or an array of several numbers
    what = f"an integer of {value.bit_length()} bits" if isinstance(value, int) else f"{value!r:.80}"
    raise Failure("bad_verdict", f"a reward must be a finite number, not {what}")


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
