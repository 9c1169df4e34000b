"""The card: the rewards of bad policies and of the oracle, how variants were judged, and whether each is in its limit.

How much a bad policy may earn depends on the task. Guessing among four options earns a quarter on average, and more
with luck. A policy that always answers B earns the share of rows whose answer is B. So the limit is
`max(guessing + 3 standard errors, guessing + SLACK, most common answer + SLACK)`. An empty answer may earn nothing. An
environment can declare a higher limit for a policy, with a reason (`expected_exploits` in its `qualify.py`).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

from ludus.qualify.attempts import Attempt, Kind
from ludus.qualify.checks import Check, Played
from ludus.qualify.policies import DRAWS

SLACK = 0.1

#: A variant is accepted if it earns this share of the oracle's reward for the same row.
ACCEPTED = 0.9
MAX_EXAMPLES = 5

#: The family of bad policies that answer nothing.
EMPTY = "empty"


@dataclass(frozen=True)
class Thresholds:
    """The limits of a card that passes. By default `max_exploit` is derived from what guessing earns."""

    max_exploit: float | None = None
    min_oracle: float = 0.99
    max_false_positive: float = 0.0
    max_false_negative: float = 0.0


@dataclass(frozen=True)
class Exploit:
    """The best member of a family of bad policies, with its mean reward. `why` is the reason for a declared limit."""

    family: str
    best: str
    reward: float
    limit: float
    why: str = ""

    @property
    def excess(self) -> float:
        """The reward above the limit; 0 within the limit."""
        return max(0.0, self.reward - self.limit - 1e-9)


@dataclass(frozen=True)
class Rate:
    """The number of variants that were judged wrongly, with the first few as examples."""

    wrong: int
    total: int
    examples: list[str]

    @property
    def value(self) -> float | None:
        """The rate, or None without variants."""
        return self.wrong / self.total if self.total else None


@dataclass
class Card:
    """The results of qualifying one environment."""

    environment: str
    rows: int
    attempts: int
    chance: float
    thresholds: Thresholds
    exploits: list[Exploit]
    oracle: float | None
    false_positive: Rate
    false_negative: Rate
    checks: list[Check] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether no check failed. Skipped checks do not count."""
        return all(check.status != "failed" for check in self.checks)

    @property
    def best_exploit(self) -> Exploit | None:
        """The bad policy with the highest reward, among those without a declared limit or above it if there are any."""
        found = [exploit for exploit in self.exploits if exploit.excess or not exploit.why] or self.exploits
        return max(found, key=lambda exploit: exploit.reward, default=None)

    def to_row(self) -> dict[str, Any]:
        """The card as one JSON object."""
        best = self.best_exploit
        return {
            "environment": self.environment,
            "passed": self.passed,
            "rows": self.rows,
            "attempts": self.attempts,
            "chance": self.chance,
            "best_exploit": vars(best) if best else None,
            "oracle": self.oracle,
            "false_positive_rate": self.false_positive.value,
            "false_negative_rate": self.false_negative.value,
            "checks": [vars(check) for check in self.checks],
            "exploits": [vars(exploit) for exploit in self.exploits],
            "false_positives": vars(self.false_positive),
            "false_negatives": vars(self.false_negative),
            "thresholds": vars(self.thresholds),
        }


def exploit_limit(chances: list[float], choices: list[str], thresholds: Thresholds) -> float:
    """The highest mean reward that a bad policy may earn, for rows with these chances and these right options."""
    if thresholds.max_exploit is not None:
        return thresholds.max_exploit
    chance = sum(chances) / len(chances)
    error = math.sqrt(sum(each * (1 - each) for each in chances) / DRAWS) / len(chances)
    favourite = max(Counter(choices).values(), default=0) / len(chances)
    return min(max(chance + 3 * error, chance + SLACK, favourite + SLACK), 0.99)


def exploits_of(
    attempts: list[Attempt], played: Played, limit: float, expected: dict[str, tuple[float, str]]
) -> list[Exploit]:
    """The best member of each family, by mean reward over rollouts that were scored and are not masked.

    The limit of an empty answer is 0, unless the environment declares another.
    """
    rewards: dict[str, list[float]] = defaultdict(list)
    for attempt in attempts:
        reward = _unmasked_reward(played, attempt) if attempt.kind == "exploit" else None
        if reward is not None:
            rewards[attempt.name].append(reward)
    families: dict[str, list[Exploit]] = defaultdict(list)
    for name, earned in rewards.items():
        family = name.partition("/")[0]
        allowed, why = (
            expected.get(name) or expected.get(family) or (0.0 if family == EMPTY and limit < 1 else limit, "")
        )
        families[family].append(Exploit(family, name, sum(earned) / len(earned), allowed, why))
    return [max(members, key=lambda each: (each.excess, each.reward)) for members in families.values()]


def oracle_score(attempts: list[Attempt], played: Played) -> float | None:
    """The mean reward of the oracle's rollouts. A failed rollout counts as 0; masked rollouts are left out."""
    known = [each for each in attempts if each.kind == "oracle" and not _masked(played, each)]
    return sum(played[each.id].reward or 0.0 for each in known) / len(known) if known else None


def wrong_rate(attempts: list[Attempt], played: Played, kind: Kind) -> Rate:
    """How many variants of this kind were judged wrongly, over the rows on which the oracle earned a reward."""
    full = {each.task_id: played[each.id].reward or 0.0 for each in attempts if each.kind == "oracle"}
    variants = [each for each in attempts if each.kind == kind and full.get(each.task_id, 0.0) > 0]
    wrong = []
    for each in variants:
        accepted = (played[each.id].reward or 0.0) >= ACCEPTED * full[each.task_id]
        if accepted != (kind == "preserving"):
            wrong.append(f"{each.name}: {_script_text(each)}")
    return Rate(len(wrong), len(variants), wrong[:MAX_EXAMPLES])


def threshold_checks(card: Card) -> list[Check]:
    """Whether the figures of a card are within its thresholds."""
    limits = card.thresholds
    return [
        _exploit_check(card),
        _oracle_check(card.oracle, limits.min_oracle),
        _rate_check("false positives", card.false_positive, limits.max_false_positive, "wrong answers"),
        _rate_check("false negatives", card.false_negative, limits.max_false_negative, "right answers"),
    ]


def _exploit_check(card: Card) -> Check:
    over = [each for each in card.exploits if each.excess]
    if not card.exploits:
        return Check("exploits", "failed", "no bad policy was scored")
    if not over:
        return Check("exploits", "ok")
    worst = max(over, key=lambda each: each.excess)
    return Check("exploits", "failed", f"{worst.best} earns {worst.reward:.3f}, more than {worst.limit:.3f}")


def _oracle_check(score: float | None, least: float) -> Check:
    if score is None:
        return Check("oracle", "skipped", "no row contains its answer: write oracle(task) in the folder's qualify.py")
    return Check("oracle", "ok") if score >= least else Check("oracle", "failed", f"{score:.3f} is under {least:g}")


def _rate_check(name: str, rate: Rate, most: float, what: str) -> Check:
    if rate.value is None:
        return Check(name, "skipped", f"there are no variants of {what}")
    if rate.value <= most:
        return Check(name, "ok")
    return Check(name, "failed", ", ".join([f"{rate.wrong} of {rate.total}", *rate.examples[:1]]))


def _unmasked_reward(played: Played, attempt: Attempt) -> float | None:
    return None if _masked(played, attempt) else played[attempt.id].reward


def _masked(played: Played, attempt: Attempt) -> bool:
    verdict = played[attempt.id].verdict
    return verdict is not None and verdict.mask is not None


def _script_text(attempt: Attempt) -> str:
    return " ".join(str(attempt.script).split())[:120]
