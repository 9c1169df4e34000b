"""The contract with trainers: tasks, a policy and a group size in; finished groups out, as they complete.

A `GroupFeed` is a collection that a trainer reads group by group. The rollouts are played by the collector's own
engine, with its sessions, deadlines and journals. The feed decides which rollout comes next (`schedule.py`), when a
group is complete (`open_group.py`), and whether it is delivered (`policy.py`).

Every rollout that was started is counted once: completed, masked, failed or cancelled. Every closed group is counted
once: delivered, dropped as `short`, `no_signal` or `stale`, or `unread` when the feed ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections import Counter, deque
from collections.abc import AsyncIterator, Iterator
from functools import partial
from itertools import count
from typing import Any, Literal, Self, Unpack

from ludus.collection.collection import Collection, Environments
from ludus.collection.collector import Collector
from ludus.collection.engines.playing import PlaySettings
from ludus.collection.options import CollectArguments, Options
from ludus.collection.plan import TaskWork
from ludus.environment import Environment
from ludus.errors import UserError
from ludus.task import private
from ludus.train.group import TrainingGroup, TrainingMember
from ludus.train.open_group import OpenGroup
from ludus.train.policy import GroupPolicy, check_whole
from ludus.train.schedule import FeedEngine, GroupSchedule

_LOG = logging.getLogger(__name__)

#: A feed without an end stops with an error if this many rollouts failed and none has a verdict.
FAILURES_WITHOUT_VERDICT = 256


class GroupFeed:
    """Groups of rollouts for a trainer. `options` are those of `ludus.collect`.

        async with GroupFeed("mcqa", model=policy, policy=GroupPolicy(size=8)) as feed:
            async for group in feed:
                train(group)
                feed.update()  # the weights have changed

    `epochs` is how often the tasks are played; None is forever. A step of the trainer takes `groups_per_step` groups.
    With `ahead`, groups are generated for at most that many steps beyond the current one, counted by the calls of
    `update`; 0 generates with the newest weights only. Without it, the reader sets the pace: no group is started while
    `groups_per_step` finished groups are unread.
    """

    def __init__(
        self,
        environment: Environments = None,
        *,
        policy: GroupPolicy | None = None,
        groups_per_step: int = 8,
        ahead: int | None = None,
        epochs: int | None = 1,
        version: int = 0,
        **options: Unpack[CollectArguments],
    ) -> None:
        check_whole("groups_per_step", groups_per_step, 1)
        check_whole("version", version, 0)
        for name, value, least in (("ahead", ahead, 0), ("epochs", epochs, 1)):
            if value is not None:
                check_whole(name, value, least)
        self.policy = policy or GroupPolicy()
        if options.setdefault("repeats", self.policy.size) != self.policy.size:
            raise UserError("repeats is the size of a group here", "Write policy=GroupPolicy(size=...)")
        options.setdefault("tokens", True)
        self.collection = Collection(environment, Options(**options))
        self.version = version
        self.group_counts: Counter[str] = Counter()
        self._groups_per_step, self._ahead, self._epochs = groups_per_step, ahead, epochs
        self._updates = 0
        self._numbers = count()
        self._visits: Counter[str] = Counter()  # how often each task was played
        self._schedule = GroupSchedule(self._next_group, self._closed, self.collection.options.play.seed)
        self._ready: deque[TrainingGroup] = deque()
        self._upcoming: Iterator[TaskWork] | None = None
        self._reading = self._exhausted = False
        self._collector: Collector | None = None
        self._first_failure: TrainingMember | None = None
        self._running: asyncio.Task[None] | None = None

    @property
    def counts(self) -> Counter[str]:
        """The rollouts so far: started, completed, masked, failed, cancelled, and late ones among them."""
        return self._schedule.counts

    def environment_of(self, row: dict[str, Any]) -> Environment:
        """The environment of a row."""
        self.prepare()
        assert self._collector is not None
        return self._collector.plan.environment_of(row)

    def tasks(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Each task's id and row."""
        self.prepare()
        return ((task_id, row) for task_id, row, _ in self.collection.rows)

    def prepare(self) -> None:
        """Check the rows and the settings, so that mistakes are reported before any model call."""
        if self._collector is not None:
            return
        self._collector = self.collection.prepare(sink=self._schedule.arrived, engine=self._engine)
        policy = self.policy
        if getattr(getattr(self.collection.model, "config", None), "policy_version", None) is not None:
            cause = "model.policy_version is set, and the versions of a feed's updates are recorded in its place"
            raise UserError(cause, "Leave model.policy_version out")
        together = [
            environment.name for environment in self.collection.environments() if environment.resources.by_group
        ]
        if together and (policy.extra or policy.deadline is not None):
            cause = f"{together[0]} judges a group as a whole (verify_group): extra and deadline cannot be used"
            raise UserError(cause, "Set limits.group, the seconds that a finished rollout waits for the others")

    async def __aenter__(self) -> Self:
        """Start the policy and the engine."""
        if self._running is not None:
            raise UserError("a feed can be started once", "Make a new one")
        self.prepare()
        assert self._collector is not None
        self.collection.model.policy_version = self.version
        self._changed = asyncio.Event()
        self._running = asyncio.create_task(self.collection.run(self._collector))
        self._running.add_done_callback(lambda _: self._changed.set())
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Cancel the rollouts in flight, close their sessions, and write the metrics."""
        self._schedule.stop()
        if self._running is not None:
            with contextlib.suppress(*(() if exc[0] is None else (Exception,))):
                await self._running
        if self._ready:
            self.group_counts["unread"] += len(self._ready)
            self._ready.clear()

    def __aiter__(self) -> AsyncIterator[TrainingGroup]:
        """The finished groups, in the order of completion."""
        return self

    async def __anext__(self) -> TrainingGroup:
        """The next finished group. Raises the error that ended the collection, if one did."""
        if not self._reading:
            self._reading = True
            self._schedule.wake()
        while True:
            while self._ready:
                group = self._fresh(self._ready.popleft())
                if group is not None:
                    self.group_counts["delivered"] += 1
                self._schedule.wake(self.policy.size + self.policy.extra)
                if group is not None:
                    return group
            if self._running is None:
                raise UserError("a feed is read inside `async with`", "Write: async with GroupFeed(...) as feed:")
            if self._running.done():
                self._running.result()
                self._report_failures()
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()

    async def play(self, task_id: str, row: dict[str, Any], size: int | None = None) -> TrainingGroup:
        """Play one group now and wait for it. Members beyond `max_span` or `max_staleness` are dropped, no group is."""
        policy = self.policy if size is None else dataclasses.replace(self.policy, size=size, min_size=0)
        environment = self.environment_of(row)
        group = self._open(task_id, environment, row, policy)
        group.work.task = environment.task(private(row))
        group.result = asyncio.get_running_loop().create_future()
        if self._running is None:
            raise UserError("groups are played inside `async with`", "Write: async with GroupFeed(...) as feed:")
        self._schedule.add(group)
        either: set[asyncio.Future[Any]] = {group.result, self._running}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._schedule.withdraw(group)
            self.group_counts["cancelled"] += 1
            raise
        if not group.result.done():
            self._running.result()
            raise UserError("the feed was closed before the group was complete")
        return group.result.result()

    def update(self, version: int | None = None) -> None:
        """The weights have changed: calls from now on are of this version, by default the next one."""
        self.version = self.version + 1 if version is None else version
        self._updates += 1
        self.collection.model.policy_version = self.version
        self._schedule.end_stale()
        self._schedule.wake()

    @contextlib.asynccontextmanager
    async def updating(
        self, version: int | None = None, *, servers: Literal["run", "pause", "drain"] = "run"
    ) -> AsyncIterator[None]:
        """Change the weights inside: a policy in this process pauses between two batches, and then has a new version.

        The model servers run on, or stop all at once: `pause` freezes the calls in flight, which go on with the new
        weights; `drain` waits for them. `metrics.json` records under `model.stops` what each server did. Rollouts in
        flight go on with the new weights; each of their calls records its own version.
        """
        model = self.collection.model
        paused = getattr(model, "paused", contextlib.nullcontext)
        if servers != "run":
            if not hasattr(model, "servers_stopped"):
                raise UserError(f"{model.name} has no servers that can {servers}", "Use a model of vllm: or sglang:")
            paused = partial(model.servers_stopped, servers)
        async with paused():
            yield
            self.update(version)

    def _engine(self, settings: PlaySettings) -> FeedEngine:
        ends = self.policy.max_staleness if self.policy.over_budget == "drop" else None
        settings.options = settings.options.replace(max_staleness=ends)
        return FeedEngine(settings, self._schedule)

    def _next_group(self) -> OpenGroup | None:
        """Open the group of the next task, unless generation is far enough ahead."""
        if not self._reading or not self._may_open():
            return None
        if self._upcoming is None:
            self._upcoming = self._works()
        work = next(self._upcoming, None)
        if work is None:
            self._exhausted = True
            self._end_if_idle()
            return None
        group = self._open(work.task_id, work.environment, work.row, self.policy)
        group.work.task = work.task
        return group

    def _may_open(self) -> bool:
        if self._ahead is None:
            return len(self._ready) < self._groups_per_step
        unused = self._schedule.open_groups + len(self._ready)
        return self.group_counts["delivered"] + unused < self._groups_per_step * (self._updates + 1 + self._ahead)

    def _works(self) -> Iterator[TaskWork]:
        for _ in count() if self._epochs is None else range(self._epochs):
            for task_id, row, task in self.collection.rows:
                yield TaskWork(task_id, self.environment_of(row), row, {}, task)

    def _open(self, task_id: str, environment: Environment, row: dict[str, Any], policy: GroupPolicy) -> OpenGroup:
        self._visits[task_id] += 1
        visit = self._visits[task_id]
        name = task_id if visit == 1 else f"{task_id}.v{visit}"
        repeats = dict.fromkeys(range(policy.size + policy.extra), 1)
        work = TaskWork(name, environment, row, repeats)
        together = environment.resources.by_group
        return OpenGroup(work, policy, next(self._numbers), task_id=task_id, all_together=together)

    def _report_failures(self) -> None:
        """Say why the feed was empty, if no rollout had a verdict. Without an end of its own, that is an error."""
        failed, self._first_failure = self._first_failure, None
        if failed is None or self._has_verdicts:
            return
        told = f"the feed is empty: {self.counts['failed']} rollouts failed, the first: {failed.failure}"
        if self._epochs is None:
            raise UserError(told)
        _LOG.warning("%s", told)

    @property
    def _has_verdicts(self) -> bool:
        return bool(self.counts["completed"] + self.counts["masked"])

    def _closed(self, opened: OpenGroup) -> None:
        group = opened.finished()
        self._first_failure = self._first_failure or next(iter(group.failures), None)
        if self._collector is not None:
            self._collector.metrics.end_task(opened.work.task_id)
        if opened.result is not None:
            self._drop_stale(group)
            self.group_counts["delivered"] += 1
            if not opened.result.done():
                opened.result.set_result(group)
            return
        if not self._dropped(group):
            self._ready.append(group)
        else:
            self._schedule.wake(self.policy.size + self.policy.extra)
        self._changed.set()
        if self._epochs is None and self.counts["failed"] >= FAILURES_WITHOUT_VERDICT and not self._has_verdicts:
            self._schedule.stop()
        self._end_if_idle()

    def _dropped(self, group: TrainingGroup) -> bool:
        """Whether a closed group is dropped. Counts it then."""
        policy = self.policy
        if len(group.trainable) < policy.least:
            reason = "short"
        elif policy.size > 1 and not policy.keep_without_signal and not group.has_signal:
            reason = "no_signal"
        else:
            return False
        self.group_counts[reason] += 1
        return True

    def _fresh(self, group: TrainingGroup) -> TrainingGroup | None:
        """The group without what stale weights wrote; None if too few members are left."""
        if not self._drop_stale(group):
            return group
        if len(group.trainable) < self.policy.least:
            self.group_counts["stale"] += 1
            return None
        return None if self._dropped(group) else group

    def _drop_stale(self, group: TrainingGroup) -> bool:
        """Drop the members of stale weights, or cut their stale tokens. False if there are none."""
        limit = self.policy.max_staleness
        if limit is None:
            return False
        oldest = self.version - limit
        old = [member for member in group.members if not all(v is not None and v >= oldest for v in member.versions)]
        if not old:
            return False
        kept = [member for member in old if self.policy.over_budget == "cut" and member.cut(oldest=oldest)]
        group.cut += len(kept)
        fresh = [member for member in group.members if member not in old or member in kept]
        group.dropped += len(group.members) - len(fresh)
        group.members = fresh
        return True

    def _end_if_idle(self) -> None:
        """End the collection when all tasks are played and no group is open."""
        if self._exhausted and not self._schedule.open_groups:
            self._schedule.stop()
