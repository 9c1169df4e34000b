"""The card: the rewards of bad policies and of the oracle, how variants were judged, and their limits.

How much a bad policy may earn depends on the task. Guessing among four options earns a quarter on average, and more
with luck. A policy that always answers B earns the share of rows whose answer is B. So the limit is
`max(guessing + 3 standard errors, guessing + SLACK, most common answer + SLACK)`. An empty answer and a program that
attacks the grader may earn nothing. An environment can declare a higher limit for a policy, with a reason
(`expected_exploits` in its `qualify.py`).

Unsound and strict are two things. A verifier is unsound if it rewards wrong answers. It is strict if it refuses right
answers in another form. Strictness costs signal but teaches nothing wrong, so it is a rate, and fails only beyond a
limit that you set.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any, Literal

from ludus_qualify.attempts import Attempt
from ludus_qualify.checks import Check, Played
from ludus_qualify.policies import DRAWS
from ludus_qualify.rates import Rate, Thresholds, credit_of, masked

SLACK = 0.1

#: With fewer rows no verifier is called trusted: five rows reveal a fault in half of all rows with 97 %, two with 75 %.
FEWEST_ROWS = 5

#: The families of bad policies that may earn nothing: those that answer nothing, and programs that attack the grader.
NOTHING = {"empty", "cheat"}

#: The family of policies that give one answer to every task.
CONSTANT = "constant"

#: The card in a word: every check passed; none failed, but some were skipped or have a finding; or the worst failure.
CardVerdict = Literal["trusted", "not shown", "unsound", "broken", "strict"]

#: If one of these checks fails, the verifier rewards wrong answers.
_SOUNDNESS = {"exploits", "false positives"}


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


@dataclass
class Card:
    """The results of qualifying one environment.

    `odd` counts the odd answers that ended without a verdict, `near_misses` those that earned the full reward, `cheats`
    the attacks on the grader that earned any, `oracles_failed` the right answers that earned too little.
    `tool_errors` counts the exceptions of tools, most
    frequent first. `warnings` are sentences about mistakes in the environment that no check finds.
    """

    environment: str
    rows: int
    attempts: int
    chance: float
    thresholds: Thresholds
    exploits: list[Exploit]
    oracle: float | None
    false_positive: Rate
    false_negative: Rate
    odd: Rate = field(default_factory=lambda: Rate(0, 0, []))
    near_misses: Rate = field(default_factory=lambda: Rate(0, 0, []))
    cheats: Rate = field(default_factory=lambda: Rate(0, 0, []))
    oracles_failed: Rate = field(default_factory=lambda: Rate(0, 0, []))
    gold_from: dict[str, int] = field(default_factory=dict)
    checks: list[Check] = field(default_factory=list)
    tool_errors: list[dict[str, Any]] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether no check failed. Skipped checks do not count: see `verdict`."""
        return not self.failed

    @property
    def failed(self) -> list[str]:
        """The names of the checks that failed."""
        return [check.name for check in self.checks if check.status == "failed"]

    @property
    def not_shown(self) -> list[str]:
        """What the skipped checks would have tested."""
        return [check.claim or check.name for check in self.checks if check.status == "skipped"]

    @property
    def findings(self) -> list[str]:
        """What a person must look at before the verifier can be trusted."""
        return [check.claim for check in self.checks if check.status == "look"]

    @property
    def verdict(self) -> CardVerdict:
        """What the card says in one word."""
        failed = set(self.failed)
        if failed & _SOUNDNESS:
            return "unsound"
        if failed:
            return "strict" if failed == {"false negatives"} else "broken"
        return "not shown" if self.not_shown or self.findings else "trusted"

    @property
    def unseen(self) -> float:
        """The largest share of faulty rows that this card's rows would miss with a probability of 5 %."""
        return float(1 - 0.05 ** (1 / self.rows))

    @property
    def best_exploit(self) -> Exploit | None:
        """The bad policy with the highest reward. Those within a declared limit count only if there are no others."""
        candidates = [exploit for exploit in self.exploits if exploit.excess or not exploit.why] or self.exploits
        return max(candidates, key=lambda exploit: exploit.reward, default=None)

    def to_row(self) -> dict[str, Any]:
        """The card as one JSON object."""
        best = self.best_exploit
        return {
            "environment": self.environment,
            "passed": self.passed,
            "verdict": self.verdict,
            "not_shown": self.not_shown,
            "findings": self.findings,
            "gold_from": self.gold_from,
            "rows": self.rows,
            "unseen": round(self.unseen, 4),
            "attempts": self.attempts,
            "chance": self.chance,
            "best_exploit": vars(best) if best else None,
            "oracle": self.oracle,
            "false_positive_rate": self.false_positive.value,
            "false_negative_rate": self.false_negative.value,
            "odd_answers": self.odd.total,
            "odd_failure_rate": self.odd.value,
            "checks": [vars(check) for check in self.checks],
            "tool_errors": self.tool_errors,
            "warnings": self.warnings,
            "exploits": [vars(exploit) for exploit in self.exploits],
            "false_positives": vars(self.false_positive),
            "false_negatives": vars(self.false_negative),
            "near_misses": vars(self.near_misses),
            "cheats": vars(self.cheats),
            "oracles_failed": vars(self.oracles_failed),
            "thresholds": vars(self.thresholds),
        }


def exploit_limit(chances: list[float], choices: list[str], thresholds: Thresholds) -> float:
    """The highest mean reward that a bad policy may earn. `choices` are the right options of the rows."""
    if thresholds.max_exploit is not None:
        return thresholds.max_exploit
    chance = sum(chances) / len(chances)
    error = math.sqrt(sum(chance * (1 - chance) for chance in chances) / DRAWS) / len(chances)
    favourite = max(Counter(choices).values(), default=0) / len(chances)
    return min(max(chance + 3 * error, chance + SLACK, favourite + SLACK), 0.99)


def exploits_of(
    attempts: list[Attempt],
    played: Played,
    limit: float,
    expected: dict[str, tuple[float, str]],
    choices: list[str],
    thresholds: Thresholds,
) -> list[Exploit]:
    """The best member of each family, by mean reward over rollouts that were scored and are not masked.

    The limit of an empty answer and of a cheat is 0, unless the environment declares another. A policy that always
    chooses one option may earn the share of rows where that option is right; `choices` are the right options.
    """
    rewards: dict[str, list[float]] = defaultdict(list)
    for attempt in attempts:
        reward = _unmasked_reward(played, attempt) if attempt.kind == "exploit" else None
        if reward is not None:
            rewards[attempt.name].append(thresholds.credit(reward))
    right = Counter(map(_option, choices))
    families: dict[str, list[Exploit]] = defaultdict(list)
    for name, earned in rewards.items():
        family, _, member = name.partition("/")
        own = 0.0 if family in NOTHING and limit < 1 else limit
        if family == CONSTANT:
            own = max(own, right[_option(member)] / len(earned))
        allowed, why = expected.get(name) or expected.get(family) or (own, "")
        families[family].append(Exploit(family, name, sum(earned) / len(earned), allowed, why))
    return [max(members, key=lambda exploit: (exploit.excess, exploit.reward)) for members in families.values()]


def oracle_score(attempts: list[Attempt], played: Played, thresholds: Thresholds) -> float | None:
    """The mean reward of the oracle's rollouts. A failed rollout counts as 0; masked rollouts are left out."""
    known = [attempt for attempt in attempts if attempt.kind == "oracle" and not masked(played, attempt)]
    return sum(credit_of(played, attempt, thresholds) for attempt in known) / len(known) if known else None


def tool_errors(attempts: list[Attempt], played: Played) -> list[dict[str, Any]]:
    """The exceptions that tools raised, counted by tool, exception and line, most frequent first.

    `in_right` is how many of them were raised in right answers: the others may be due to made-up arguments.
    """
    counts: Counter[tuple[str, str, str | None]] = Counter()
    in_right: Counter[tuple[str, str, str | None]] = Counter()
    for attempt in attempts:
        for error in played[attempt.id].tool_errors:
            key = error["tool"], error["exception"], error["where"]
            counts[key] += error["count"]
            in_right[key] += error["count"] if attempt.kind in ("oracle", "preserving") else 0
    return [
        {"tool": key[0], "exception": key[1], "where": key[2], "count": count, "in_right": in_right[key]}
        for key, count in counts.most_common()
    ]


def threshold_checks(card: Card) -> list[Check]:
    """Whether the figures of a card are within its thresholds. Strictness has a check only if it has a limit."""
    limits = card.thresholds
    checks = [_exploit_check(card), *_oracle_checks(card), *_soundness_checks(card)]
    if card.rows < FEWEST_ROWS:
        reason = f"{card.rows} used, and {FEWEST_ROWS} are needed: use more with --limit or --input"
        claim = f"more than {card.rows} row{'' if card.rows == 1 else 's'}"
        checks.append(Check("enough rows", "skipped", reason, claim))
    if limits.max_false_negative is not None:
        claim, most = "right answers in another form (write preserving(task))", limits.max_false_negative
        checks.append(_rate_check("false negatives", card.false_negative, most, "right answers in another form", claim))
    return checks


def _exploit_check(card: Card) -> Check:
    over = [exploit for exploit in card.exploits if exploit.excess]
    if not card.exploits:
        return Check("exploits", "skipped", "no bad policy was scored", "bad policies")
    if not over:
        return Check("exploits", "ok")
    worst = max(over, key=lambda exploit: exploit.excess)
    return Check("exploits", "failed", f"{worst.best} earns {worst.reward:.3f}, more than {worst.limit:.3f}")


def _oracle_checks(card: Card) -> list[Check]:
    name, score, least, known = "oracle", card.oracle, card.thresholds.min_oracle, sum(card.gold_from.values())
    if score is None:
        reason = "no row contains its answer: write oracle(task) in the folder's qualify.py"
        return [Check(name, "skipped", reason, "right answers (write oracle(task))")]
    if score < least:
        return [Check(name, "failed", f"{score:.3f} is under {least:g}; answers are from {', '.join(card.gold_from)}")]
    if known == card.rows:
        return [Check(name, "ok")]
    claim = f"right answers to {card.rows - known} of {card.rows} rows"
    return [Check(name, "ok"), Check("rows without answer", "skipped", f"{card.rows - known} of {card.rows}", claim)]


def _soundness_checks(card: Card) -> list[Check]:
    """Whether wrong answers earn nothing. Without any, near misses take their place: as many as rows."""
    if card.false_positive.value is None and card.near_misses.total >= card.rows:
        return []
    most, claim = card.thresholds.max_false_positive, "wrong answers (write breaking(task))"
    return [_rate_check("false positives", card.false_positive, most, "wrong answers", claim)]


def _rate_check(name: str, rate: Rate, most: float, what: str, claim: str) -> Check:
    if rate.value is None:
        return Check(name, "skipped", f"no {what} were tried", claim)
    if rate.value <= most:
        return Check(name, "ok")
    return Check(name, "failed", ", ".join([f"{rate.wrong} of {rate.total}", *rate.examples[:1]]))


def _option(text: str) -> str:
    """An option, normalized for comparisons."""
    return text.strip().upper()


def _unmasked_reward(played: Played, attempt: Attempt) -> float | None:
    return None if masked(played, attempt) else played[attempt.id].reward
