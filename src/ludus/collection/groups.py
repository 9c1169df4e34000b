"""Rollouts that are judged together: finished ones wait here, in nobody's way, until their group is complete.

A task's repeats are a group. A finished rollout waits in memory, holding neither a worker nor a place among those in
flight. A repeat that failed waits for nothing and counts as arrived. When the first to wait has waited for
`limits.group`, the group is closed with those that are there, and whoever comes later is too late, which is a failure
with a name.

Tasks are begun one after another, so what waits is at most the repeats of as many tasks as there are rollouts in
flight; each costs what its record will.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Protocol

from ludus.environment import Environment
from ludus.errors import Failure
from ludus.rollout import Rollout

#: Verdicts are relative: fewer responses than this cannot be judged, unless no more were wanted.
FEWEST = 2


class Timer(Protocol):
    """What can be called off."""

    def cancel(self) -> object:
        """Call it off."""


CallLater = Callable[[float, Callable[[], None]], Timer]


class Member:
    """A finished rollout that waits for its verdict. `mask` is what its agent knows against training on it."""

    __slots__ = ("mask", "rollout", "since")

    def __init__(self, rollout: Rollout, mask: str | None) -> None:
        self.rollout = rollout
        self.mask = mask
        self.since = perf_counter()


class Group:
    """The repeats of one task: `missing` are still being played, `members` wait, `recorded` were judged before."""

    __slots__ = ("closed", "environment", "members", "missing", "recorded", "task_id", "timer", "wanted")

    def __init__(self, task_id: str, environment: Environment, wanted: int, missing: int, recorded: list[int]) -> None:
        self.task_id = task_id
        self.environment = environment
        self.wanted = wanted
        self.missing = missing
        self.recorded = recorded
        self.members: list[Member] = []
        self.closed = False
        self.timer: Timer | None = None

    @property
    def enough(self) -> bool:
        """Whether there is anything to compare: two responses, or one where no more were wanted."""
        return len(self.members) + len(self.recorded) >= min(FEWEST, self.wanted)


class Groups:
    """The groups that are not complete yet, by task. It knows no clock and no loop: `call_later` calls it back, and
    `expired` is told of a group whose time is up.

    groups.expect(task_id, environment, wanted=4, missing=4)
    group = groups.arrived(rollout)     # None, or the group if it is complete now
    """

    def __init__(self, call_later: CallLater, expired: Callable[[Group], None]) -> None:
        self._call_later, self._expired = call_later, expired
        self.open: dict[str, Group] = {}

    def expect(
        self, task_id: str, environment: Environment, *, wanted: int, missing: int, recorded: list[int] | None = None
    ) -> None:
        """Announce `missing` rollouts of a task that has `wanted` repeats, some of them `recorded` before."""
        if missing:
            self.open[task_id] = Group(task_id, environment, wanted, missing, recorded or [])

    def arrived(self, rollout: Rollout, mask: str | None = None) -> Group | None:
        """Take in a rollout that was played; the group, if it is complete now and has anybody to judge.

        One that comes too late becomes a failed rollout. A failed one is for the caller to record at once.
        """
        group = self.open[rollout.job.task_id]
        group.missing -= 1
        if not group.missing:
            del self.open[group.task_id]
        if group.closed:
            late = f"its group was judged without it, {group.environment.limits.group:g} s after the first had finished"
            rollout.fail(Failure("group_late", late, stage="verify"))
            return None
        if rollout.error is None:
            group.members.append(Member(rollout, mask))
            if group.timer is None and group.missing:
                group.timer = self._call_later(group.environment.limits.group, lambda: self._expire(group))
        return None if group.missing else self._close(group)

    def stop(self) -> None:
        """Forget everybody who waits."""
        for group in self.open.values():
            if group.timer is not None:
                group.timer.cancel()
            group.closed = True
        self.open.clear()

    def _expire(self, group: Group) -> None:
        if not group.closed and self._close(group) is not None:
            self._expired(group)

    def _close(self, group: Group) -> Group | None:
        group.closed = True
        if group.timer is not None:
            group.timer.cancel()
        return group if group.members else None
