"""The card: what bad policies earned, what the oracle earned, how variants were judged, and whether that will do.

How much a bad policy may earn depends on the game. Guessing among four options earns a quarter, a sample of it may earn
more by luck, and whoever always says B earns as much as there are rows with that answer. So the limit is `SLACK` above
the better of the two, or three standard errors above guessing where that is more; an empty answer may earn nothing. An
environment may expect a policy to be rewarded and say why; it is then held to what it said.
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

#: What part of the oracle's reward for the same row counts as accepted.
ACCEPTED = 0.9
NAMED = 5

#: The family of bad policies that say nothing.
NOTHING = "empty"


@dataclass(frozen=True)
class Thresholds:
    """What a card must reach to pass. Without `max_exploit` the limit follows from what guessing earns."""

    max_exploit: float | None = None
    min_oracle: float = 0.99
    max_false_positive: float = 0.0
    max_false_negative: float = 0.0


@dataclass(frozen=True)
class Exploit:
    """What the best member of a family of bad policies earned. `limit` is what it may earn, `why` says why if more."""

    family: str
    best: str
    reward: float
    limit: float
    why: str = ""

    @property
    def excess(self) -> float:
        """How much more than allowed it earned; 0 within the limit."""
        return max(0.0, self.reward - self.limit - 1e-9)


@dataclass(frozen=True)
class Rate:
    """How many of the variants were judged wrongly, and the first few of them."""

    wrong: int
    total: int
    examples: list[str]

    @property
    def value(self) -> float | None:
        """The rate, or None where there was nothing to judge."""
        return self.wrong / self.total if self.total else None


@dataclass
class Card:
    """Everything that qualification found out about one environment."""

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
        """Whether no check failed. What was skipped is not held against it."""
        return all(check.status != "failed" for check in self.checks)

    @property
    def best_exploit(self) -> Exploit | None:
        """The bad policy that earned most, leaving out those that earned no more than they were expected to."""
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
    """What a bad policy may earn on rows where guessing earns `chances` and `choices` are the right options."""
    if thresholds.max_exploit is not None:
        return thresholds.max_exploit
    chance = sum(chances) / len(chances)
    error = math.sqrt(sum(each * (1 - each) for each in chances) / DRAWS) / len(chances)
    favourite = max(Counter(choices).values(), default=0) / len(chances)
    return min(max(chance + 3 * error, chance + SLACK, favourite + SLACK), 0.99)


def exploits_of(
    attempts: list[Attempt], played: Played, limit: float, expected: dict[str, tuple[float, str]]
) -> list[Exploit]:
    """The best member of each family, by mean reward over what was scored and is not masked.

    Saying nothing is no guess: it may earn nothing at all, unless it is expected to.
    """
    rewards: dict[str, list[float]] = defaultdict(list)
    for attempt in attempts:
        reward = _trained_on(played, attempt) if attempt.kind == "exploit" else None
        if reward is not None:
            rewards[attempt.name].append(reward)
    families: dict[str, list[Exploit]] = defaultdict(list)
    for name, earned in rewards.items():
        family = name.partition("/")[0]
        allowed, why = (
            expected.get(name) or expected.get(family) or (0.0 if family == NOTHING and limit < 1 else limit, "")
        )
        families[family].append(Exploit(family, name, sum(earned) / len(earned), allowed, why))
    return [max(members, key=lambda each: (each.excess, each.reward)) for members in families.values()]


def oracle_score(attempts: list[Attempt], played: Played) -> float | None:
    """The mean reward of the rollouts that deserve the full one; one that fails earns nothing here."""
    known = [each for each in attempts if each.kind == "oracle" and not _masked(played, each)]
    return sum(played[each.id].reward or 0.0 for each in known) / len(known) if known else None


def wrong_rate(attempts: list[Attempt], played: Played, kind: Kind) -> Rate:
    """How often a variant was judged wrongly, over the rows on which the oracle earned anything."""
    full = {each.task_id: played[each.id].reward or 0.0 for each in attempts if each.kind == "oracle"}
    variants = [each for each in attempts if each.kind == kind and full.get(each.task_id, 0.0) > 0]
    wrong = []
    for each in variants:
        accepted = (played[each.id].reward or 0.0) >= ACCEPTED * full[each.task_id]
        if accepted != (kind == "preserving"):
            wrong.append(f"{each.name}: {_shown(each)}")
    return Rate(len(wrong), len(variants), wrong[:NAMED])


def judged(card: Card) -> list[Check]:
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
        return Check("oracle", "skipped", "no row tells its answer: write oracle(task) in the folder's qualify.py")
    return Check("oracle", "ok") if score >= least else Check("oracle", "failed", f"{score:.3f} is under {least:g}")


def _rate_check(name: str, rate: Rate, most: float, what: str) -> Check:
    if rate.value is None:
        return Check(name, "skipped", f"there are no variants of {what}")
    if rate.value <= most:
        return Check(name, "ok")
    return Check(name, "failed", ", ".join([f"{rate.wrong} of {rate.total}", *rate.examples[:1]]))


def _trained_on(played: Played, attempt: Attempt) -> float | None:
    return None if _masked(played, attempt) else played[attempt.id].reward


def _masked(played: Played, attempt: Attempt) -> bool:
    verdict = played[attempt.id].verdict
    return verdict is not None and verdict.mask is not None


def _shown(attempt: Attempt) -> str:
    return " ".join(str(attempt.script).split())[:120]
