"""How a rollout ends.

A rollout is completed, failed, masked or ended early, and nothing else. A reward exists only if a verifier returned
one: a crash, a dead judge or a timeout is a `Failure` with a stage, a kind and a cause, never a 0. A rollout that a
limit such as `--enough` ended has a `Failure` as its reason, and is nobody's mistake.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from enum import StrEnum
from numbers import Real
from typing import Any

from ludus.errors import Failure, defined_at

#: The lowest reward that counts as a pass in an unknown environment.
PASS_REWARD = 1.0

#: Fields of a rollout's record that do not belong to its task.
RECORD = frozenset(
    "rollout_id repeat attempt outcome reward verdict_fields reward_components turn_rewards turn_credit mask receipt "
    "task_fields replay_drift stop_reason rollout_seed response usage timings model_calls tool_errors step_times "
    "threads thread_rewards parent branch_turn session_seed".split()
)

#: Fields of both a task and its record: they identify the task and are not part of its content.
NAMES = frozenset({"task_id", "agent_ref"})

#: Names that a verdict's values may not have, because the record uses them.
TAKEN = RECORD | NAMES


class Outcome(StrEnum):
    """How a rollout ended. The counts of all four always add up to the number of dispatched rollouts."""

    COMPLETED = "completed"
    FAILED = "failed"
    MASKED = "masked"
    ENDED_EARLY = "ended_early"


#: The outcomes without a reward, as records name them.
UNREWARDED = ("failed", "ended_early")


def counted_outcomes(counts: Mapping[str, int]) -> dict[str, int]:
    """The number of rollouts by outcome. `ended_early` is left out if there is none: most runs have no such limit."""
    shown = {outcome.value: counts.get(outcome.value, 0) for outcome in Outcome}
    return {name: count for name, count in shown.items() if count or name != "ended_early"}


class Verdict:
    """A verifier's result: a reward, and named values that become fields of the rollout's record and metrics.

    `components` are named parts of the reward. `turn_rewards` holds one number per model call of the main thread,
    `thread_rewards` the rewards of threads that do not get the rollout's, by name. `mask` is the reason not to train on
    this rollout although it has a reward.

        Verdict(1.0, extracted_answer="B")
    """

    __slots__ = ("components", "mask", "reward", "thread_rewards", "turn_rewards", "values")

    def __init__(
        self,
        reward: float,
        *,
        components: dict[str, float] | None = None,
        turn_rewards: list[float] | None = None,
        thread_rewards: dict[str, float] | None = None,
        mask: str | None = None,
        **values: Any,
    ) -> None:
        self.reward = _finite(reward)
        self.components = {name: _finite(part) for name, part in components.items()} if components else {}
        self.turn_rewards = [_finite(part) for part in turn_rewards] if turn_rewards else []
        self.thread_rewards = {name: _finite(part) for name, part in thread_rewards.items()} if thread_rewards else {}
        self.mask = mask
        self.values = values

    def __repr__(self) -> str:
        return f"Verdict({self.reward}, {self.values})"

    @classmethod
    def of(cls, value: Any, verifier: Callable[..., Any] | None = None) -> Verdict:
        """The verdict that `verifier` returned, as a number or as a `Verdict`. Anything else is refused.

        A value with the name of a field of the record is refused too: the record could not hold both. The failure
        names the place of the verifier.
        """
        if not isinstance(value, Verdict):
            try:
                return cls(value)
            except Failure as failure:
                failure.where = defined_at(verifier)
                raise
        if value.values and not TAKEN.isdisjoint(value.values):
            name = min(TAKEN.intersection(value.values))
            cause = f"a value of the verdict is named {name}, like a field of the record: rename it"
            raise _bad_verdict(cause, defined_at(verifier))
        return value


def _finite(value: Any) -> float:
    if type(value) is float and math.isfinite(value):
        return value
    try:
        if not isinstance(value, Real) and hasattr(value, "item"):
            value = value.item()  # a NumPy scalar that is not a `Real`, or a tensor with one element
        if isinstance(value, Real) and math.isfinite(number := float(value)):
            return number
    except (ArithmeticError, RuntimeError, TypeError, ValueError):
        pass  # an integer too large for a float, or an array with several elements
    if inspect.iscoroutine(value):
        value.close()  # or Python would warn that it was never awaited
        raise _bad_verdict("the verdict is a coroutine: write `await` before the call that gives the reward")
    shown = f"an integer of {value.bit_length()} bits" if isinstance(value, int) else f"{value!r:.80}"
    raise _bad_verdict(f"a reward must be a finite number, not {shown}: return a number or a Verdict")


def _bad_verdict(cause: str, where: str | None = None) -> Failure:
    return Failure("bad_verdict", cause, stage="verify", where=where)
