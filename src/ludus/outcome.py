"""How a rollout ends.

A rollout is completed, failed or masked, and nothing else. A reward exists only where a verifier
returned one: a crash, a dead judge or a timeout is a `Failure` with a stage, a kind and a cause, never a 0.
"""

from __future__ import annotations

import math
from enum import StrEnum
from numbers import Real
from typing import Any

from ludus.errors import Failure

#: Fields that the record of a rollout has beside its task's.
RECORD = frozenset(
    "rollout_id repeat attempt outcome reward verdict_fields reward_components turn_rewards mask receipt task_fields "
    "replay_drift stop_reason rollout_seed response usage timings model_calls parent branch_turn session_seed".split()
)

#: Fields that a task and its record have in common: they name the task and are no part of its content.
NAMES = frozenset({"task_id", "agent_ref"})

#: Names that a value of a verdict may not have, because the record needs them.
TAKEN = RECORD | NAMES


class Outcome(StrEnum):
    """The three ends of a rollout; counts of the three always add up to what was dispatched."""

    COMPLETED = "completed"
    FAILED = "failed"
    MASKED = "masked"


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
            raise _bad_verdict(f"the record has a field {name} of its own: call this value something else")
        return value


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
    raise _bad_verdict(f"a reward must be a finite number, not {what}")


def _bad_verdict(cause: str) -> Failure:
    return Failure("bad_verdict", cause, stage="verify")
