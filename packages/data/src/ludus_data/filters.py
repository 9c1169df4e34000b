"""Filters: which rollouts of a run enter a training set.

A failed rollout never does: it has no reward. A masked one does only if `outcome` asks for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ludus.errors import UserError
from ludus.outcome import UNREWARDED
from ludus_data.recorded import Sample

OutcomeChoice = Literal["completed", "masked", "any"]

#: A bound on a number: the least and the most that is kept; None is unbounded.
Bounds = tuple[float | None, float | None]
OPEN_BOUNDS: Bounds = (None, None)


@dataclass(frozen=True, slots=True)
class Filters:
    """What to keep. Bounds are inclusive. Empty tuples keep everything.

    `length` counts the characters that the model wrote (`Sample.length`). `pass_rate` is the share of the task's
    completed rollouts whose reward is at least the environment's `pass_reward`. `receipts` are beginnings of receipts:
    the first twelve characters of a receipt name the verifier.
    """

    outcome: OutcomeChoice = "completed"
    reward: Bounds = OPEN_BOUNDS
    pass_rate: Bounds = OPEN_BOUNDS
    length: Bounds = OPEN_BOUNDS
    environments: tuple[str, ...] = ()
    stop_reasons: tuple[str, ...] = ()
    receipts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.outcome not in ("completed", "masked", "any"):
            raise UserError(f"unknown outcome {self.outcome!r:.40}", "Choose completed, masked or any")
        for name in ("reward", "pass_rate", "length"):
            least, most = getattr(self, name)
            if least is not None and most is not None and least > most:
                flag = name.replace("_", "-")
                raise UserError(f"--min-{flag} {least:g} is more than --max-{flag} {most:g}")

    @property
    def needs_groups(self) -> bool:
        """Whether a filter asks for all rollouts of a task."""
        return self.pass_rate != OPEN_BOUNDS

    def reason_against(self, sample: Sample) -> str | None:
        """Why a rollout is left out, in a word or two; None if it is kept. The pass rate is not looked at."""
        outcome = sample.outcome
        if outcome in UNREWARDED:
            return outcome.replace("_", " ")
        if outcome == "masked":
            if self.outcome == "completed":
                return "masked"
        elif self.outcome == "masked":
            return "outcome"
        if self.reward != OPEN_BOUNDS and sample.reward is not None and not within(sample.reward, self.reward):
            return "reward"
        if self.environments and sample.environment not in self.environments:
            return "environment"
        if self.stop_reasons and sample.stop_reason not in self.stop_reasons:
            return "stop reason"
        if self.receipts and not sample.receipt.startswith(self.receipts):
            return "receipt"
        if self.length != OPEN_BOUNDS and not within(sample.length, self.length):
            return "length"
        return None


def within(value: float, bounds: Bounds) -> bool:
    """Whether a number lies in its bounds, which are included."""
    least, most = bounds
    return (least is None or value >= least) and (most is None or value <= most)
