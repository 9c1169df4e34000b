"""The current state of a run, for progress displays."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from ludus.episode import Episode

#: A note about a rollout in flight: a name, and the rollout's seed if it concerns one.
Mark = tuple[str, int | None]


@dataclass
class StageReport:
    """The rollouts in flight: the number in each stage, the time of the last change of stage, and the time since which
    the oldest one in stage `close` has been there. Times are of `time.perf_counter`."""

    stages: Counter[str] = field(default_factory=Counter)
    changed: float = 0.0
    closing_since: float | None = None
    limit: int | None = None  # how many rollouts may be in flight there, if that adapts

    @classmethod
    def of(cls, episodes: Iterable[Episode], in_groups: int = 0) -> StageReport:
        """The report on episodes in this process. `in_groups` rollouts wait for the verdict of their group."""
        report = cls()
        for episode in episodes:
            stage, since = episode.recorder.stage, episode.recorder.since
            report.stages[stage] += 1
            report.changed = max(report.changed, since)
            if stage == "close":
                report.closing_since = min(report.closing_since or since, since)
        if in_groups:
            report.stages["group"] = in_groups
        return report


@dataclass
class Progress:
    """The counts of a run. `notices` are sentences that a display shows once."""

    total: int = 0
    skipped: int = 0  # not played in this run: recorded, or out of attempts
    exhausted: int = 0  # the skipped rollouts that are out of attempts
    started: float = field(default_factory=time.perf_counter)
    last_change: float = field(default_factory=time.perf_counter)
    workers_ready: float | None = None  # when the first work was handed to worker processes
    in_flight: set[Episode] = field(default_factory=set)
    adaptive_limit: Callable[[], int | None] = lambda: None  # how many rollouts may be in flight here, if that adapts
    in_groups: Callable[[], int] = lambda: 0  # rollouts that wait for the group's other rollouts or its verdict
    workers: dict[int, StageReport] = field(default_factory=dict)  # by the number of the worker process
    notices: list[str] = field(default_factory=list)
    resumed: int = 0  # interrupted rollouts that continued after their last turn
    turns_kept: int = 0  # turns that these did not play again
    turns_alike: int = 0  # of them: model calls whose request differed in volatile text
    turns_lost: int = 0  # saved turns that were played again
    started_over: int = 0  # interrupted rollouts that could not be restored
    marks: list[Mark] = field(default_factory=list)  # what was noted on rollouts
    output_tokens: int = 0
    useful_tokens: int = 0  # of these, in rollouts with a verdict
    finished: int = 0

    def expect(self, total: int) -> None:
        """Set the number of rollouts. The journals may hold more: those of rows that are not in the input now."""
        self.total = total
        self.skipped = min(self.skipped, total)
        self.exhausted = min(self.exhausted, self.skipped)

    def checkpoints(self) -> dict[str, int]:
        """What became of the interrupted rollouts and their saved turns."""
        return {
            "resumed": self.resumed,
            "turns_kept": self.turns_kept,
            "turns_alike": self.turns_alike,
            "turns_lost": self.turns_lost,
            "started_over": self.started_over,
        }

    def drain(self) -> dict[str, Any]:
        """A worker's news since the last drain: interrupted rollouts, notices and marks."""
        counts = self.checkpoints()
        self.resumed = self.turns_kept = self.turns_alike = self.turns_lost = self.started_over = 0
        notices, self.notices = self.notices, []
        marks, self.marks[:] = self.marks[:], []
        told = any(counts.values()) or notices or marks
        return {"resumed": counts, "notices": notices, "marks": marks} if told else {}

    def merge(self, drained: dict[str, Any]) -> None:
        """Add a worker's news."""
        for name, count in drained["resumed"].items():
            setattr(self, name, getattr(self, name) + count)
        self.notices += drained["notices"]
        self.marks += [(name, seed) for name, seed in drained["marks"]]

    def reports(self) -> list[StageReport]:
        """The rollouts in flight, here and in each worker process."""
        own = StageReport.of(self.in_flight, self.in_groups())
        own.limit = self.adaptive_limit()
        return [own, *self.workers.values()]

    def waiting(self) -> Counter[str]:
        """The number of rollouts per stage. Stage `group`: waiting for the group's other rollouts or its verdict."""
        stages: Counter[str] = Counter()
        for report in self.reports():
            stages.update(report.stages)
        return stages
