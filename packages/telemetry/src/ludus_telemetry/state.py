"""The current state of a collection: the one source of every chart."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass

from ludus.collection.metrics import Metrics, RunTotals
from ludus.collection.progress import Progress

_NOT_IN_NAMES = re.compile(r"[^\w.-]+")


@dataclass(frozen=True)
class RunState:
    """The state of a run. `step` counts all rollouts with an outcome, also earlier ones of a resumed run. `finished`
    counts those of this run."""

    totals: RunTotals
    in_flight: dict[str, int]
    expected: int
    finished: int
    seconds: float

    @classmethod
    def of(cls, metrics: Metrics, progress: Progress) -> RunState:
        """The state now. Called on the event loop of the collection."""
        seconds = time.perf_counter() - progress.started
        return cls(metrics.totals(), dict(progress.waiting()), progress.total, progress.finished, seconds)

    @property
    def step(self) -> int:
        """The position on a chart's axis."""
        return sum(self.totals.counts.values())

    def scalars(self, before: RunState | None = None) -> dict[str, float]:
        """The values of a chart by name. The speed is since the state `before`, or since the start."""
        totals, usage = self.totals, self.totals.usage
        done, since = (before.finished, before.seconds) if before is not None else (0, 0.0)
        values: dict[str, float] = {f"rollouts/{outcome}": count for outcome, count in totals.counts.items()}
        if self.seconds > since:
            values["rollouts_per_second"] = (self.finished - done) / (self.seconds - since)
        if totals.mean_reward is not None:
            values["reward/mean"] = totals.mean_reward
        if totals.pass_rate is not None:
            values["pass_rate"] = totals.pass_rate
        for name in ("input_tokens", "output_tokens"):
            if isinstance(usage.get(name), int):
                values[f"tokens/{name.removesuffix('_tokens')}"] = usage[name]
        for name, count in totals.failures.items():
            stage, _, kind = name.partition("/")
            values[f"failures/{stage}/{_NOT_IN_NAMES.sub('_', kind)[:80]}"] = count
        return values
