"""The collector's engine for a feed: the engine of this process, with the feed's schedule as its source of jobs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ludus.collection.collector import Collector
from ludus.collection.engines.playing import Playing, PlaySettings
from ludus.collection.plan import TaskWork
from ludus.train.schedule import GroupSchedule


class FeedEngine:
    """Plays the jobs of the schedule on the running event loop."""

    takes_lines = False

    def __init__(self, settings: PlaySettings, schedule: GroupSchedule) -> None:
        self._settings, self._schedule = settings, schedule

    async def run(self, work: Iterator[TaskWork], collector: Collector) -> None:
        """Play groups until the schedule ends. `work`, one pass over the rows, is not used: the feed reads them."""
        async with Playing(self._settings, collector.recorder, collector.progress, collector.watchdog) as playing:
            self._schedule.begin(playing)
            await playing.play(self._schedule, self._settings.concurrency)

    def model_stats(self) -> dict[str, Any]:
        """The statistics of the model."""
        return self._settings.model.stats()

    def processes(self) -> dict[str, int]:
        """This process alone."""
        return {"count": 1, "died": 0}
