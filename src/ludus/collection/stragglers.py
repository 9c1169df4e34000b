"""Stragglers: rollouts that end early because enough of their task's rollouts have ended, because its deadline passed,
or because their policy version is too old.

Each of them is recorded as ended early, with stage `agent` and the reason as its kind: `enough`, `group_deadline` or
`stale`. It has no reward. A resumed run with the same limit does not play it; without the limit it does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from ludus.collection.options import StopOptions
from ludus.episode import Episode
from ludus.errors import Failure
from ludus.rollout import Job, Rollout, rollout_id
from ludus.runtime.numbers import whole_number
from ludus.tokens import versions_of

#: The kinds of failure of stragglers, and the options that end them.
ENDED_BY = {"enough": "enough", "group_deadline": "group_deadline", "stale": "max_staleness"}

#: Seconds between two checks of the policy versions of the rollouts in flight.
STALE_SECONDS = 0.5


def is_ended_by(kind: str, limits: StopOptions) -> bool:
    """Whether a limit is set that ends rollouts with this kind of failure."""
    return kind in ENDED_BY and getattr(limits, ENDED_BY[kind]) is not None


@dataclass(slots=True)
class _OpenTask:
    left: set[int]  # the repeats that have not ended
    good: int
    running: set[int] = field(default_factory=set)
    closed: Failure | None = None
    timer: asyncio.TimerHandle | None = None


class Stragglers:
    """The tasks that are being played, by id. `end` ends a rollout in flight."""

    def __init__(self, limits: StopOptions, end: Callable[[str, Failure], Any]) -> None:
        self._limits, self._end = limits, end
        self._tasks: dict[str, _OpenTask] = {}

    def expect(self, task_id: str, repeats: Iterable[int], good: int) -> None:
        """The repeats of a task will be played here. `good` others ended well before."""
        opened = self._tasks[task_id] = _OpenTask(set(repeats), good)
        self._close_if_enough(task_id, opened)

    def start(self, job: Job) -> Failure | None:
        """A rollout is about to begin. Returns why it is no longer needed; None if it is."""
        opened = self._tasks.get(job.task_id)
        if opened is None or opened.closed is not None:
            return opened.closed if opened is not None else None
        deadline = self._limits.group_deadline
        if deadline is not None and opened.timer is None:
            expire = asyncio.get_running_loop().call_later
            opened.timer = expire(deadline, self._expire, job.task_id, opened, deadline)
        opened.running.add(job.repeat)
        return None

    def ended(self, rollout: Rollout) -> None:
        """A rollout has ended. If its task needs no more, the others are cancelled."""
        job = rollout.job
        opened = self._tasks.get(job.task_id)
        if opened is None:
            return
        opened.running.discard(job.repeat)
        opened.left.discard(job.repeat)
        if rollout.error is None:
            opened.good += 1
            self._close_if_enough(job.task_id, opened)
        if not opened.left:
            if opened.timer is not None:
                opened.timer.cancel()
            del self._tasks[job.task_id]

    def _close_if_enough(self, task_id: str, opened: _OpenTask) -> None:
        enough = self._limits.enough
        if enough is not None and opened.good >= enough:
            self._close(task_id, opened, Failure("enough", f"{enough} other rollouts of its task had ended"))

    def _expire(self, task_id: str, opened: _OpenTask, deadline: float) -> None:
        self._close(task_id, opened, Failure("group_deadline", f"its task began {deadline:g} s before"))

    def _close(self, task_id: str, opened: _OpenTask, why: Failure) -> None:
        if opened.closed is None:
            why.stage = "agent"
            opened.closed = why
            for repeat in list(opened.running):
                self._end(rollout_id(task_id, repeat), why)


def stale(episodes: Iterable[Episode], limit: int, newest: Any = None) -> list[tuple[str, Failure]]:
    """The rollouts in flight whose first call is more than `limit` policy versions behind the newest call of any."""
    by_rollout = [(episode.job.rollout_id, versions) for episode in episodes if (versions := _versions(episode))]
    latest = max([*(versions[-1] for _, versions in by_rollout), *_numbers([newest])], default=0)
    return [
        (name, Failure("stale", f"its oldest call is of policy version {versions[0]}, now is {latest}", stage="agent"))
        for name, versions in by_rollout
        if latest - min(versions) > limit
    ]


def _versions(episode: Episode) -> list[int]:
    calls = episode.calls
    if not calls:  # its first call is under way
        return _numbers([episode.recorder.asked_version])
    return _numbers(version for call in (calls[:1] + calls[-1:]) for version in versions_of(call))


def _numbers(values: Iterable[Any]) -> list[int]:
    """Policy versions that are numbers, or texts that hold one. Others cannot be compared."""
    numbers = (whole_number(str(value)) for value in values if value is not None)
    return [number for number in numbers if number is not None]
