"""The result of scoring again: counts of changed and failed rows, and the first few of each."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ludus.errors import Failure
from ludus.rescore.scoring import ScoredLine

#: What can become of a row.
KINDS = ("unchanged", "changed", "new", "failed", "fresh", "other", "duplicate")

#: How many changed, failed and drifted rows are listed.
MAX_LISTED = 10


class Changes:
    """Running totals. Every row counts once, as one of `KINDS`. `by_row` holds the index of each row's kind in there.
    A `duplicate` is a later line of a rollout. It is written as it is, and is no row of any other figure.

    `changed` rows have another reward, or are masked only before or only now. `new` rows had no reward before. `fresh`
    rows were not scored: their receipt is still valid. `other` rows belong to another environment. The means and the
    passes are of rows with both rewards that were never masked.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.by_row = bytearray()
        self.failures: Counter[str] = Counter()
        self.masked = 0
        self.torn = 0  # 1 if the last line was torn, and left out
        self.changes: list[dict[str, Any]] = []
        self.failed: list[dict[str, Any]] = []
        self.drifted: list[str] = []
        self.drift_count = 0
        self._scored_twice = 0
        self._sum_before = self._sum_after = 0.0
        self._passed_before = self._passed_after = 0
        self._pass_rewards: set[float] = set()  # the thresholds of the rows' environments

    @property
    def rows(self) -> int:
        """The number of rows counted so far."""
        return self.counts.total() - self.counts["duplicate"]

    @property
    def scored(self) -> int:
        """The number of rows with a verdict so far."""
        return sum(self.counts[kind] for kind in ("unchanged", "changed", "new"))

    def add(self, scored: ScoredLine) -> None:
        """Count one line."""
        before, reward, masked = scored.before, scored.reward, bool(scored.mask)
        if scored.duplicate:
            kind = "duplicate"
        elif reward is None:
            unscored = "other" if scored.other else "fresh"
            kind = unscored if scored.failure is None else self._failed(scored, scored.failure)
        elif before is None:
            kind = "new"
        else:
            kind = "unchanged"
            if before != reward or scored.was_masked != masked:
                kind = self._changed(scored)
            if not masked and not scored.was_masked:
                self._scored_twice += 1
                self._sum_before += before
                self._sum_after += reward
                self._passed_before += before >= scored.pass_reward
                self._passed_after += reward >= scored.pass_reward
                self._pass_rewards.add(scored.pass_reward)
        self.masked += masked
        self.counts[kind] += 1
        self.by_row.append(KINDS.index(kind))
        if scored.drift:
            self.drift_count += 1
            if len(self.drifted) < MAX_LISTED:
                self.drifted.append(scored.name)

    def merge(self, other: Changes) -> None:
        """Add the totals of later rows."""
        self.counts += other.counts
        self.by_row += other.by_row
        self.failures += other.failures
        self.masked += other.masked
        self.drift_count += other.drift_count
        self._scored_twice += other._scored_twice
        self._sum_before += other._sum_before
        self._sum_after += other._sum_after
        self._passed_before += other._passed_before
        self._passed_after += other._passed_after
        self._pass_rewards |= other._pass_rewards
        self.changes += other.changes[: MAX_LISTED - len(self.changes)]
        self.failed += other.failed[: MAX_LISTED - len(self.failed)]
        self.drifted += other.drifted[: MAX_LISTED - len(self.drifted)]

    def _changed(self, scored: ScoredLine) -> str:
        if len(self.changes) < MAX_LISTED:
            masks = {"mask": scored.mask} if scored.mask else {}
            self.changes.append({**_location(scored), "before": scored.before, "after": scored.reward, **masks})
        return "changed"

    def _failed(self, scored: ScoredLine, failure: Failure) -> str:
        self.failures[f"{failure.stage}/{failure.kind}"] += 1
        if len(self.failed) < MAX_LISTED:
            why = {"stage": failure.stage, "kind": failure.kind, "cause": failure.cause}
            self.failed.append({**_location(scored), **why})
        return "failed"

    def summary(self) -> dict[str, Any]:
        """All totals as one JSON object."""
        names = ("unchanged", "changed", "new", "failed", "fresh")
        scored_twice = self._scored_twice
        return {
            "rows": self.rows,
            **{name: self.counts[name] for name in names},
            "duplicates": self.counts["duplicate"],
            "torn": self.torn,
            "masked": self.masked,
            "mean_before": self._sum_before / scored_twice if scored_twice else None,
            "mean_after": self._sum_after / scored_twice if scored_twice else None,
            "pass_reward": min(self._pass_rewards) if len(self._pass_rewards) == 1 else None,
            "passed_before": self._passed_before,
            "passed_after": self._passed_after,
            "changes": self.changes,
            "failures": dict(self.failures.most_common()),
            "first_failures": self.failed,
            "drift": {"rollouts": self.drift_count, "first": self.drifted},
        }


def _location(scored: ScoredLine) -> dict[str, Any]:
    return {"line": scored.number, "rollout_id": scored.name}
