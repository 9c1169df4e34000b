"""What scoring again changed: counts that add up to the rows, and the first few of what a person wants to look at."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ludus.errors import Failure
from ludus.rescore.scoring import Answer

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
        before, reward, masked = answer.before, answer.reward, bool(answer.mask)
        if reward is None:
            kind = "fresh" if answer.failure is None else self._failed(answer, answer.failure)
        elif before is None:
            kind = "new"
        else:
            kind = "unchanged"
            if before != reward or answer.was_masked != masked:
                kind = self._changed(answer)
            if not masked and not answer.was_masked:
                self._both += 1
                self._sum_before += before
                self._sum_after += reward
        self.masked += masked
        self.counts[kind] += 1
        if answer.drift:
            self.drift_count += 1
            if len(self.drifted) < NAMED:
                self.drifted.append(answer.name)

    def merge(self, other: Changes) -> None:
        """Count what another has counted. Its rows come after those counted so far."""
        self.counts += other.counts
        self.failures += other.failures
        self.masked += other.masked
        self.drift_count += other.drift_count
        self._both += other._both
        self._sum_before += other._sum_before
        self._sum_after += other._sum_after
        self.changes += other.changes[: NAMED - len(self.changes)]
        self.failed += other.failed[: NAMED - len(self.failed)]
        self.drifted += other.drifted[: NAMED - len(self.drifted)]

    def _changed(self, answer: Answer) -> str:
        if len(self.changes) < NAMED:
            masks = {"mask": answer.mask} if answer.mask else {}
            self.changes.append({**_place(answer), "before": answer.before, "after": answer.reward, **masks})
        return "changed"

    def _failed(self, answer: Answer, failure: Failure) -> str:
        self.failures[f"{failure.stage}/{failure.kind}"] += 1
        if len(self.failed) < NAMED:
            why = {"stage": failure.stage, "kind": failure.kind, "cause": failure.cause}
            self.failed.append({**_place(answer), **why})
        return "failed"

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


def _place(answer: Answer) -> dict[str, Any]:
    return {"line": answer.number, "rollout_id": answer.name}
