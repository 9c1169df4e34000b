"""The difficulty file, and the subset of a dataset that is worth training on."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from ludus.errors import UserError
from ludus.runtime.encoding import encode
from ludus.store.drafts import draft
from ludus_bench.profile.profile import Profile
from ludus_bench.profile.tasks import TaskProfile


class Band(NamedTuple):
    """Pass rates from `low` to `high`, both included."""

    low: float
    high: float

    @classmethod
    def parse(cls, text: str) -> Band:
        """Read `0.1..0.9`."""
        low, dots, high = text.partition("..")
        try:
            band = cls(float(low), float(high)) if dots else None
        except ValueError:
            band = None
        if band is None or not (0 <= band.low <= band.high <= 1) or math.isnan(band.low + band.high):
            raise UserError(f"--filter {text[:40]} is not a range of pass rates", "Write two shares, such as 0.1..0.9")
        return band

    def side(self, task: TaskProfile) -> str:
        """Where a task lies: `kept`, `too_hard`, `too_easy`, or `unknown` if no rollout of it completed."""
        rate = task.pass_rate
        if rate is None:
            return "unknown"
        return "too_hard" if rate < self.low else "too_easy" if rate > self.high else "kept"


def write_difficulty(profile: Profile, path: Path) -> None:
    """Write one line for each task: its pass rate with interval, its rewards and its counts."""
    with draft(path, "Choose another --output") as file:
        for task in profile.tasks.values():
            file.write(encode(task.row()) + b"\n")


def write_subset(profile: Profile, band: Band, path: Path) -> dict[str, int]:
    """Write the rows of the tasks in a band, once each, as a dataset for `ludus collect --input`.

    The rows are read back from the rollouts, with the ids of their tasks. Returns how many tasks lie where.
    """
    counts = Counter({"kept": 0, "too_hard": 0, "too_easy": 0, "unknown": 0})
    wanted = set()
    for key, task in profile.tasks.items():
        side = band.side(task)
        counts[side] += 1
        if side == "kept":
            wanted.add(key)
    with draft(path, "Choose another --output") as file:
        for rollout in profile.rollouts():
            key = rollout.job.environment, rollout.task_id
            if key in wanted:
                wanted.discard(key)
                file.write(encode({"task_id": rollout.task_id, **rollout.job.row}) + b"\n")
    return dict(counts)
