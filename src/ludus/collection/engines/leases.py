"""Leases: which worker plays which rollouts.

A worker gets work under a lease with a unique number. If the worker dies, its leases end, and its unfinished rollouts
are handed out again under new numbers. A result under an ended number is dropped, so every rollout is recorded once,
however late a worker answers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from ludus.collection.engines.summaries import summary_job
from ludus.collection.plan import TaskWork
from ludus.rollout import Job

#: After so many dead workers a rollout is played alone. If the next worker dies too, the rollout caused it.
ALONE_AFTER = 2

#: After so many dead workers a rollout fails.
MAX_DEATHS = 3


class Deaths(NamedTuple):
    """The workers that died in a row while they played a rollout, and the most turns that it had saved."""

    workers: int = 0
    turns: int = 0


@dataclass(slots=True)
class WorkLease:
    """Work that a worker plays. `missing` are its unfinished repeats, `deaths` the workers that died with a repeat. A
    worker with a lease that is alone plays nothing else, one repeat after another."""

    number: int
    worker: int
    work: TaskWork
    missing: set[int]
    deaths: dict[int, Deaths]
    job: Job  #: of the summaries of its rollouts
    started: int | None = None  #: the repeat that is being played, if the lease is alone
    turns: dict[int, int] = field(default_factory=dict)  #: how many turns of a repeat are saved

    @property
    def is_alone(self) -> bool:
        """Whether too many workers died with one of its repeats."""
        return _most(self.deaths) >= ALONE_AFTER

    def went_on(self, repeat: int, turns: int) -> None:
        """`turns` turns of a repeat are saved. If that is a new maximum, the repeat did not kill earlier workers."""
        self.turns[repeat] = turns
        if repeat in self.deaths and turns > self.deaths[repeat].turns:
            del self.deaths[repeat]


class Leases:
    """The leases that are in force, by their number."""

    def __init__(self) -> None:
        self._by_number: dict[int, WorkLease] = {}
        self._granted = 0
        self._missing: dict[int, int] = {}  # by worker
        self._alone: set[int] = set()  # the workers that play a lease that is alone

    @property
    def missing(self) -> int:
        """How many rollouts are being played."""
        return sum(self._missing.values())

    def missing_of(self, worker: int) -> int:
        """How many rollouts a worker plays."""
        return self._missing.get(worker, 0)

    def plays_alone(self, worker: int) -> bool:
        """Whether a worker plays a lease that is alone."""
        return worker in self._alone

    def of(self, worker: int) -> list[WorkLease]:
        """The leases of a worker."""
        return [lease for lease in self._by_number.values() if lease.worker == worker]

    def grant(self, worker: int, work: TaskWork, deaths: dict[int, Deaths]) -> WorkLease:
        """Give work to a worker."""
        self._granted += 1
        lease = WorkLease(self._granted, worker, work, set(work.repeats), deaths, summary_job(work))
        self._by_number[lease.number] = lease
        self._missing[worker] = self.missing_of(worker) + len(lease.missing)
        if lease.is_alone:
            self._alone.add(worker)
        return lease

    def playing(self, number: int, repeat: int) -> WorkLease | None:
        """The lease with this number, if it is in force and the repeat is not finished."""
        lease = self._by_number.get(number)
        return lease if lease is not None and repeat in lease.missing else None

    def start(self, number: int, repeat: int) -> None:
        """A worker began to play a repeat of a lease that is alone."""
        if (lease := self._by_number.get(number)) is not None:
            lease.started = repeat

    def finish(self, number: int, repeat: int) -> WorkLease | None:
        """A result arrived. Returns its lease, or None if it is late or a duplicate."""
        lease = self._by_number.get(number)
        if lease is None or repeat not in lease.missing:
            return None
        lease.missing.remove(repeat)
        self._missing[lease.worker] -= 1
        if not lease.missing:
            del self._by_number[number]
            self._alone.discard(lease.worker)
        return lease

    def revoke(self, worker: int) -> list[WorkLease]:
        """End the leases of a worker that died, and count the death for the repeats that may have caused it."""
        ended = self.of(worker)
        for lease in ended:
            del self._by_number[lease.number]
            alone = lease.started is not None and lease.started in lease.missing
            for repeat in [lease.started] if alone else lease.missing:
                assert repeat is not None
                workers, turns = lease.deaths.get(repeat, Deaths())
                lease.deaths[repeat] = Deaths(workers + 1, max(turns, lease.turns.get(repeat, 0)))
        self._missing.pop(worker, None)
        self._alone.discard(worker)
        return ended


@dataclass
class HandOut:
    """The work that is not leased yet: first that of dead workers, then the rest of the collection.

    With `whole_tasks`, or if a task needs a group, one worker gets all of its work.
    """

    work: Iterator[TaskWork]
    whole_tasks: bool = False
    _again: deque[tuple[TaskWork, dict[int, Deaths]]] = field(default_factory=deque)
    _alone: deque[tuple[TaskWork, dict[int, Deaths]]] = field(default_factory=deque)
    _next: TaskWork | None = None

    @property
    def has_alone(self) -> bool:
        """Whether there is work that must be played alone."""
        return bool(self._alone)

    def take_alone(self) -> tuple[TaskWork, dict[int, Deaths]]:
        """Work that must be played alone, and how many workers died with it."""
        return self._alone.popleft()

    def take(self, at_most: int) -> tuple[TaskWork, dict[int, Deaths]] | None:
        """Work of about `at_most` rollouts, and how many workers died with it; None if there is none."""
        if self._again:
            return self._again.popleft()
        work = self._next or next(self.work, None)
        self._next = None
        if work is None:
            return None
        if len(work.repeats) > at_most and not self.whole_tasks and not work.environment.resources.by_group:
            repeats = list(work.repeats.items())
            self._next = replace(work, repeats=dict(repeats[at_most:]))
            return replace(work, repeats=dict(repeats[:at_most])), {}
        return work, {}

    @property
    def is_empty(self) -> bool:
        """Whether nothing is left. May read one task ahead."""
        if self._next is None:
            self._next = next(self.work, None)
        return self._next is None and not self._again and not self._alone

    def put_back(self, lease: WorkLease) -> list[int]:
        """Take back a lease that has ended. Returns the repeats that must not be played again."""
        died, missing = lease.deaths, sorted(lease.missing)
        given_up = [repeat for repeat in missing if repeat in died and died[repeat].workers >= MAX_DEATHS]
        left = {repeat: lease.work.repeats[repeat] for repeat in missing if repeat not in given_up}
        if left:
            deaths = {repeat: died[repeat] for repeat in left if repeat in died}
            again = self._alone if _most(deaths) >= ALONE_AFTER else self._again
            again.append((replace(lease.work, repeats=left), deaths))
        return given_up


def _most(deaths: dict[int, Deaths]) -> int:
    return max((death.workers for death in deaths.values()), default=0)
