"""Hands the rollouts of groups to the collector's engine, and puts finished rollouts into their groups.

A new group is opened when a place is free and `next_group` has one, so the tasks are not read ahead. The oldest group
comes first, also for replacements of failed members.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterator

from ludus.collection.collector import Collector, ThisProcess
from ludus.collection.engines.playing import Playing, PlaySettings
from ludus.collection.plan import TaskWork
from ludus.rollout import Job, Rollout, rollout_id
from ludus.train.group import TrainingMember
from ludus.train.open_group import OpenGroup

#: Opens the next group; None if there is none now.
NextGroup = Callable[[], OpenGroup | None]


class GroupSchedule:
    """The source of jobs of a feed (a `JobSource`). `closed` is called with each complete group.

    `counts` counts started rollouts, and their ends: completed, masked, failed, or cancelled. A `late` rollout ended
    after its group was closed; it is also counted by its outcome.
    """

    def __init__(self, next_group: NextGroup, closed: Callable[[OpenGroup], None], seed: int) -> None:
        self._next_group, self._closed, self._seed = next_group, closed, seed
        self._playing: Playing | None = None
        self._queue: deque[OpenGroup] = deque()  # groups with waiting repeats
        self._open: dict[str, OpenGroup] = {}  # by the task id of their jobs
        self._waiters: deque[asyncio.Future[None]] = deque()
        self.counts: Counter[str] = Counter()
        self.ended = False

    @property
    def open_groups(self) -> int:
        """How many groups are being played."""
        return len(self._open)

    def begin(self, playing: Playing) -> None:
        """Play groups here from now on. Groups that were added before are played first."""
        self._playing = playing
        for group in self._queue:
            playing.jobs(group.work)

    def add(self, group: OpenGroup) -> None:
        """Play a group as soon as there is room."""
        self._register(group)
        self.wake(len(group.waiting))

    def take(self) -> Job | None:
        """The next rollout to start; None if there is none now."""
        while not self.ended:
            if not self._queue:
                group = self._next_group()
                if group is None:
                    return None
                self._register(group)
                self.wake(len(group.waiting) - 1)
            group = self._queue[0]
            if group.closed is not None or not group.waiting:
                self._queue.popleft()
                continue
            return self._start(group)
        return None

    async def wait(self) -> None:
        """Wait until there may be a rollout to start."""
        if self.ended:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        await waiter

    def wake(self, count: int | None = None) -> None:
        """Wake `count` waiting slots, or all."""
        while self._waiters and (count is None or count > 0):
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                count = count - 1 if count is not None else None

    async def arrived(self, rollout: Rollout) -> None:
        """Take a rollout that has ended: the sink of the collection."""
        self.counts[rollout.outcome.value] += 1
        group = self._open.get(rollout.job.task_id)
        if group is None:
            self.counts["late"] += 1
            return
        waiting = len(group.waiting)
        group.add(TrainingMember(rollout))
        if group.closed is not None:
            self._close(group)
        elif len(group.waiting) > waiting:  # a replacement
            if group not in self._queue:
                self._enqueue(group)
            self.wake(len(group.waiting) - waiting)

    def end_stale(self) -> None:
        """Cancel and replace the rollouts in flight whose policy version is too old for their group."""
        if self._playing is not None:
            self._playing.end_stale()

    def withdraw(self, group: OpenGroup) -> None:
        """Cancel a group that nothing waits for any more."""
        if self._open.pop(group.work.task_id, None) is not None:
            group.closed = "cancelled"
            self._cancel(group)

    def stop(self) -> None:
        """Start no more rollouts, and cancel those in flight."""
        self.ended = True
        for group in list(self._open.values()):
            group.closed = "stopped"
            self._cancel(group)
        self._open.clear()
        self._queue.clear()
        self.wake()

    def _register(self, group: OpenGroup) -> None:
        self._open[group.work.task_id] = group
        self._enqueue(group)
        if self._playing is not None:
            self._playing.jobs(
                group.work
            )  # makes the environment known, and the group if its members are judged together

    def _enqueue(self, group: OpenGroup) -> None:
        """Put a group into the queue: the oldest group first."""
        position = len(self._queue)
        while position and self._queue[position - 1].number > group.number:
            position -= 1
        self._queue.insert(position, group)

    def _start(self, group: OpenGroup) -> Job:
        self.counts["started"] += 1
        deadline = group.policy.deadline
        if deadline is not None and group.timer is None:
            group.timer = asyncio.get_running_loop().call_later(deadline, self._expire, group)
        return group.work.job(self._seed, group.start())

    def _expire(self, group: OpenGroup) -> None:
        if group.closed is None:
            group.closed = "deadline"
            self._close(group)

    def _close(self, group: OpenGroup) -> None:
        del self._open[group.work.task_id]
        self._cancel(group)
        self._closed(group)

    def _cancel(self, group: OpenGroup) -> None:
        if group.timer is not None:
            group.timer.cancel()
        for repeat in group.running:
            if self._playing is not None and self._playing.withdraw(rollout_id(group.work.task_id, repeat)):
                group.cancelled += 1
                self.counts["cancelled"] += 1
        group.running.clear()
        group.waiting.clear()


class FeedEngine(ThisProcess):
    """The collector's engine for a feed: plays the jobs of its schedule on the running event loop."""

    def __init__(self, settings: PlaySettings, schedule: GroupSchedule) -> None:
        super().__init__(settings)
        self._schedule = schedule

    async def run(self, work: Iterator[TaskWork], collector: Collector) -> None:
        """Play groups until the schedule ends. `work`, one pass over the rows, is not used: the feed reads them."""
        async with Playing(self._settings, collector.recorder, collector.progress, collector.watchdog) as playing:
            self._schedule.begin(playing)
            await playing.play(self._schedule, self._settings.concurrency)
