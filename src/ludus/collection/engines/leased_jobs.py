"""The jobs of a worker's leases, for `Playing`."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

from ludus.rollout import Job


class _Leased(NamedTuple):
    number: int
    jobs: Iterator[Job]
    alone: bool


class LeasedJobs:
    """Gives out the jobs of leases in order.

    The jobs of a lease that is alone are given out one after the other, each announced with `started` first: if the job
    kills this process, the collection knows which one it was. `starving` is called when no job is left. `lease_of` maps
    every job to the number of its lease.
    """

    def __init__(
        self, lease_of: dict[str, int], started: Callable[[int, int], None], starving: Callable[[], None]
    ) -> None:
        self.ended = False
        self._lease_of, self._started, self._starving = lease_of, started, starving
        self._leases: deque[_Leased] = deque()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._player: asyncio.Task[None] | None = None  # plays the lease that is alone

    def add(self, number: int, jobs: Iterator[Job], count: int, *, alone: bool) -> None:
        """Add the `count` jobs of a lease."""
        self._leases.append(_Leased(number, jobs, alone))
        self._wake(1 if alone else count)

    def end(self) -> None:
        """No more leases will come."""
        self.ended = True
        self._wake(len(self._waiting))

    def take(self) -> Job | None:
        """The next job; None if there is none now."""
        while self._leases:
            lease = self._leases[0]
            if lease.alone and self._player not in (None, asyncio.current_task()):
                return None
            job = next(lease.jobs, None)
            if job is None:
                self._leases.popleft()
                self._player = None
                continue
            self._lease_of[job.rollout_id] = lease.number
            if lease.alone:
                self._player = asyncio.current_task()
                self._started(lease.number, job.repeat)
            return job
        return None

    async def wait(self) -> None:
        """Wait until a lease is added, or until the end."""
        self._starving()
        if not self.ended:
            added: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(added)
            await added

    def _wake(self, count: int) -> None:
        while count > 0 and self._waiting:
            added = self._waiting.popleft()
            if not added.done():
                added.set_result(None)
                count -= 1
