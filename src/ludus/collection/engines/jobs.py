"""What an engine plays, and who takes what it played."""

from __future__ import annotations

from collections.abc import Awaitable, Iterator
from typing import Any, Protocol

from ludus.rollout import Job, Rollout


class JobSource(Protocol):
    """Where the asyncio tasks get their jobs."""

    ended: bool  #: whether no job will come any more

    def take(self) -> Job | None:
        """The next job; None if there is none now."""

    async def wait(self) -> None:
        """Wait until there may be a job, or until the end."""


class FinishedRollouts(Protocol):
    """Takes finished rollouts."""

    def add(self, rollout: Rollout) -> Awaitable[None] | None:
        """Take a rollout. Returns an awaitable for backpressure, or None."""

    async def add_group(self, rollouts: list[Rollout]) -> None:
        """Take rollouts that were judged together."""

    def read_recorded(self, recorded: Any) -> dict[str, Any]:
        """The row of a rollout that an earlier run recorded: one of `TaskWork.recorded`."""


class AllJobs:
    """The jobs of an iterator, which is read only when a job is needed."""

    def __init__(self, jobs: Iterator[Job]) -> None:
        self._jobs = jobs
        self.ended = False

    def take(self) -> Job | None:
        """The next job; None at the end."""
        job = next(self._jobs, None)
        self.ended = job is None
        return job

    async def wait(self) -> None:
        """Never called: an iterator without a next job has ended."""
