"""A group while its rollouts are played: which repeats wait, run and have ended, and when the group is complete."""

from __future__ import annotations

import asyncio
from collections import deque

from ludus.collection.plan import TaskWork
from ludus.train.group import TrainingGroup, TrainingMember
from ludus.train.policy import GroupPolicy


class OpenGroup:
    """The repeats of one task: `waiting` are not started, `running` are. It knows neither clock nor event loop.

    With `all_together` the members are judged as a group, so none is replaced, cancelled or closed early.
    """

    def __init__(
        self, work: TaskWork, policy: GroupPolicy, number: int, *, task_id: str, all_together: bool = False
    ) -> None:
        self.work, self.policy, self.number, self.task_id = work, policy, number, task_id
        self._all_together = all_together
        self.waiting: deque[int] = deque(work.repeats)
        self.running: set[int] = set()
        self.members: list[TrainingMember] = []
        self.failures: list[TrainingMember] = []
        self.dropped = self.cancelled = self.cut = self._replaced = 0
        self.closed: str | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.result: asyncio.Future[TrainingGroup] | None = None  # set if a caller waits for the group

    def start(self) -> int:
        """Start the next waiting repeat and return its number."""
        repeat = self.waiting.popleft()
        self.running.add(repeat)
        return repeat

    def add(self, member: TrainingMember) -> None:
        """Add a finished rollout as a member, replace it, or count it as missing. May close the group."""
        self.running.discard(member.rollout.job.repeat)
        if member.failure is not None:
            self.failures.append(member)
        elif not self._within_span(member):
            self.dropped += 1
        else:
            self.members.append(member)
        size = self.policy.size
        missing = size - len(self.members) - len(self.running) - len(self.waiting)
        while missing > 0 and not self._all_together and self._replaced < self.policy.replacements:
            repeat = len(self.work.repeats)
            self.work.repeats[repeat] = 1
            self.waiting.append(repeat)
            self._replaced += 1
            missing -= 1
        if len(self.members) >= size and not self._all_together:
            self.closed = "full"
        elif not self.running and not self.waiting:
            self.closed = "full" if len(self.members) >= size else "short"

    def finished(self) -> TrainingGroup:
        """The group for the trainer, members in the order of their repeats."""
        assert self.closed is not None, "the group is open"
        members = sorted(self.members, key=lambda member: member.rollout.job.repeat)
        return TrainingGroup(
            self.task_id,
            self.work.row,
            self.number,
            members,
            self.failures,
            self.cancelled,
            self.dropped,
            self.closed,
            self.cut,
        )

    def _within_span(self, member: TrainingMember) -> bool:
        """Whether a member may stay, perhaps after a cut."""
        limit = self.policy.max_span
        if limit is None:
            return True
        versions = member.versions
        if not versions:
            return True
        known = [version for version in versions if version is not None]
        if len(known) == len(versions) and max(known) - min(known) <= limit:
            return True
        if self.policy.over_budget == "drop" or not known or not member.cut(newest=known[0] + limit):
            return False
        self.cut += 1
        return True
