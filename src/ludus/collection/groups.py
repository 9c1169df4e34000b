"""Groups for `verify_group`: all repeats of a task. Finished rollouts wait here until their group is complete.

A waiting rollout is held in memory: it occupies no worker and does not count against `--concurrency`. A failed repeat
is recorded at once and is no longer missing. `limits.group` seconds after the first rollout began to wait, the group is
closed with the rollouts that are there. A rollout that finishes later fails with kind `group_late`.

Tasks are started in order, so at most `concurrency` tasks have waiting rollouts. A waiting rollout takes about as much
memory as its record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Any, Protocol

from ludus.environment import Environment
from ludus.errors import Failure
from ludus.rollout import Rollout

#: The fewest responses that can be compared. A task with one repeat is judged with one.
MIN_GROUP_SIZE = 2


class Timer(Protocol):
    """A scheduled callback."""

    def cancel(self) -> object:
        """Do not call it."""


CallLater = Callable[[float, Callable[[], None]], Timer]


class Member:
    """A finished rollout that waits for its verdict. `mask` is the agent's reason not to train on it."""

    __slots__ = ("mask", "rollout", "since")

    def __init__(self, rollout: Rollout, mask: str | None) -> None:
        self.rollout = rollout
        self.mask = mask
        self.since = perf_counter()


class Group:
    """The `size` repeats of one task: `missing` are not finished, `members` wait for a verdict, `recorded` were judged
    in an earlier run (journal offsets, or lines). The others failed."""

    __slots__ = ("closed", "environment", "members", "missing", "recorded", "size", "task_id", "timer")

    def __init__(
        self, task_id: str, environment: Environment, size: int, missing: int, recorded: Sequence[Any]
    ) -> None:
        self.task_id = task_id
        self.environment = environment
        self.size = size
        self.missing = missing
        self.recorded = recorded
        self.members: list[Member] = []
        self.closed = False
        self.timer: Timer | None = None

    @property
    def is_comparable(self) -> bool:
        """Whether there are at least two responses, or one if the task has one repeat."""
        return len(self.members) + len(self.recorded) >= min(MIN_GROUP_SIZE, self.size)


class IncompleteGroups:
    """The incomplete groups by task id. `call_later` schedules the deadlines, and `expired` is called with each group
    that is closed by its deadline.

    groups.expect(task_id, environment, size=4, missing=4)
    group = groups.add(rollout)     # the group if it is complete now, else None
    """

    def __init__(self, call_later: CallLater, expired: Callable[[Group], None]) -> None:
        self._call_later, self._expired = call_later, expired
        self.by_task: dict[str, Group] = {}

    def expect(
        self, task_id: str, environment: Environment, *, size: int, missing: int, recorded: Sequence[Any] = ()
    ) -> None:
        """Open the group of a task, if some of its `size` repeats are `missing`."""
        if missing:
            self.by_task[task_id] = Group(task_id, environment, size, missing, recorded)

    def add(self, rollout: Rollout, mask: str | None = None) -> Group | None:
        """Add a rollout that was played. Returns its group if it is now complete and has members.

        A rollout whose group is closed fails here. The caller records failed rollouts at once.
        """
        group = self.by_task[rollout.job.task_id]
        group.missing -= 1
        if not group.missing:
            del self.by_task[group.task_id]
        if group.closed:
            late = f"its group was judged without it, {group.environment.limits.group:g} s after the first rollout"
            rollout.fail(Failure("group_late", late, stage="verify"))
            return None
        if rollout.error is None:
            group.members.append(Member(rollout, mask))
            if group.timer is None and group.missing:
                group.timer = self._call_later(group.environment.limits.group, lambda: self._expire(group))
        return None if group.missing else self._close(group)

    def clear(self) -> None:
        """Close all groups and drop their waiting rollouts."""
        for group in self.by_task.values():
            self._close(group)
        self.by_task.clear()

    def _expire(self, group: Group) -> None:
        if not group.closed and self._close(group) is not None:
            self._expired(group)

    def _close(self, group: Group) -> Group | None:
        """Returns the group if it has members to judge."""
        group.closed = True
        if group.timer is not None:
            group.timer.cancel()
        return group if group.members else None
