"""Shares of attempts that were judged wrongly, each with its first few examples."""

from __future__ import annotations

from dataclasses import dataclass

from ludus_qualify.attempts import Attempt, Kind, shown
from ludus_qualify.checks import Played

MAX_EXAMPLES = 5

#: A variant is accepted if it earns this share of the oracle's reward for the same row.
ACCEPTED = 0.9

#: How the names of attacks on the grader begin.
CHEAT = "cheat/"


@dataclass(frozen=True)
class Thresholds:
    """The limits of a card that passes. By default `max_exploit` is derived from what guessing earns.

    With `pass_reward`, a reward counts as 1 from there on and as 0 below, for verifiers that give partial credit.
    """

    max_exploit: float | None = None
    min_oracle: float = 0.99
    max_false_positive: float = 0.0
    max_false_negative: float | None = None
    pass_reward: float | None = None

    def credit(self, reward: float) -> float:
        """What a reward counts."""
        return reward if self.pass_reward is None else float(reward >= self.pass_reward)


@dataclass(frozen=True)
class Rate:
    """The number of attempts that were judged wrongly, with the first few as examples."""

    wrong: int
    total: int
    examples: list[str]

    @property
    def value(self) -> float | None:
        """The rate, or None without attempts."""
        return self.wrong / self.total if self.total else None


def wrong_rate(attempts: list[Attempt], played: Played, kind: Kind, thresholds: Thresholds, place: str = "") -> Rate:
    """How many variants of this kind were judged wrongly, over the rows on which the oracle earned a reward.

    Examples name the `place` of the function that returned the variants.
    """
    full = {attempt.task_id: credit_of(played, attempt, thresholds) for attempt in attempts if attempt.kind == "oracle"}
    variants = [attempt for attempt in attempts if attempt.kind == kind and full.get(attempt.task_id, 0.0) > 0]
    wrong = []
    for variant in variants:
        accepted = credit_of(played, variant, thresholds) >= ACCEPTED * full[variant.task_id]
        if accepted != (kind == "preserving"):
            wrong.append(f"{variant.name}{f' ({place})' if place else ''}: {shown(variant.script)}")
    return Rate(len(wrong), len(variants), wrong[:MAX_EXAMPLES])


def odd_rate(attempts: list[Attempt], played: Played) -> Rate:
    """How many odd answers ended without a verdict."""
    failed = [f"{attempt.name}: {played[attempt.id].error}" for attempt in attempts if played[attempt.id].error]
    return Rate(len(failed), len(attempts), failed[:MAX_EXAMPLES])


def cheat_rate(attempts: list[Attempt], played: Played, thresholds: Thresholds) -> Rate:
    """How many attacks on the grader earned a reward."""
    cheats = [attempt for attempt in attempts if attempt.name.startswith(CHEAT)]
    paid = [attempt for attempt in cheats if credit_of(played, attempt, thresholds) > 0]
    return Rate(len(paid), len(cheats), [f"{attempt.name} at {attempt.task_id}" for attempt in paid[:MAX_EXAMPLES]])


def oracle_rate(attempts: list[Attempt], played: Played, thresholds: Thresholds) -> Rate:
    """How many right answers earned less than they must."""
    right = [attempt for attempt in attempts if attempt.kind == "oracle" and not masked(played, attempt)]
    refused = [attempt for attempt in right if credit_of(played, attempt, thresholds) < thresholds.min_oracle]
    examples = [f"{attempt.task_id}: {played[attempt.id].error or played[attempt.id].reward}" for attempt in refused]
    return Rate(len(refused), len(right), examples[:MAX_EXAMPLES])


def credit_of(played: Played, attempt: Attempt, thresholds: Thresholds) -> float:
    """What the reward of an attempt counts; 0 without a reward."""
    reward = played[attempt.id].reward
    return thresholds.credit(reward) if reward is not None else 0.0


def masked(played: Played, attempt: Attempt) -> bool:
    """Whether an attempt was judged and is not fit to train on."""
    verdict = played[attempt.id].verdict
    return verdict is not None and verdict.mask is not None
