"""What scoring again changed: counts that add up to the rows, and the first few of what a person wants to look at."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ludus.collection.scoring import Answer

#: How many changes, failures and drifted rollouts are named.
NAMED = 10


class Changes:
    """Running totals. Every row is one of `unchanged`, `changed`, `new`, `failed` and `fresh`.

    A row is changed when its reward is another one, or when it was masked and is not, or is and was not. A row without
    a reward that has one now is new. Means are of rows that were scored now and before, and are not masked.
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.masked = 0
        self.changes: list[dict[str, Any]] = []
        self.failed: list[dict[str, Any]] = []
        self.drifted: list[str] = []
        self.drift_count = 0
        self._both = 0
        self._sum_before = self._sum_after = 0.0

    @property
    def rows(self) -> int:
        """How many rows were answered."""
        return self.counts.total()

    @property
    def nothing_scored(self) -> bool:
        """Whether there were rows to score and none of them could be."""
        return self.counts["failed"] > 0 and self.counts["failed"] == self.rows

    def add(self, answer: Answer) -> None:
        """Count one answer."""
        self.counts[self._kind(answer)] += 1
        if answer.drift:
            self.drift_count += 1
            if len(self.drifted) < NAMED:
                self.drifted.append(answer.name)

    def _kind(self, answer: Answer) -> str:
        if answer.fresh:
            return "fresh"
        place = {"line": answer.number, "rollout_id": answer.name}
        failure, verdict, before = answer.failure, answer.verdict, answer.before
        if failure is not None or verdict is None:
            assert failure is not None
            self.failures[f"{failure.stage}/{failure.kind}"] += 1
            if len(self.failed) < NAMED:
                self.failed.append({**place, "stage": failure.stage, "kind": failure.kind, "cause": failure.cause})
            return "failed"
        self.masked += bool(verdict.mask)
        if before is None:
            return "new"
        if not verdict.mask and not answer.was_masked:
            self._both += 1
            self._sum_before += before
            self._sum_after += verdict.reward
        if before == verdict.reward and answer.was_masked == bool(verdict.mask):
            return "unchanged"
        if len(self.changes) < NAMED:
            masks = {"mask": verdict.mask} if verdict.mask else {}
            self.changes.append({**place, "before": before, "after": verdict.reward, **masks})
        return "changed"

    def summary(self) -> dict[str, Any]:
        """Everything as one JSON object."""
        names = ("unchanged", "changed", "new", "failed", "fresh")
        both = self._both
        return {
            "rows": self.rows,
            **{name: self.counts[name] for name in names},
            "masked": self.masked,
            "mean_before": self._sum_before / both if both else None,
            "mean_after": self._sum_after / both if both else None,
            "changes": self.changes,
            "failures": dict(self.failures.most_common()),
            "first_failures": self.failed,
            "drift": {"rollouts": self.drift_count, "first": self.drifted},
        }
