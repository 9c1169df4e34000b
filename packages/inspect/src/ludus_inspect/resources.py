"""A sample of Inspect as the resources of a rollout: its scorers give the verdict."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from pydantic import BaseModel, ConfigDict

import ludus
from ludus.errors import Failure
from ludus.outcome import Verdict
from ludus.resources import Resources
from ludus.response import Response
from ludus_inspect.sample import PlayedSample
from ludus_inspect.scores import verdict_of
from ludus_inspect.settings import InspectConfig
from ludus_inspect.worker import InspectWorker, worker_of


class SampleReference(BaseModel):
    """Which sample a row is."""

    model_config = ConfigDict(extra="allow")

    sample_id: int | str
    digest: str = ""


class InspectResources(Resources):
    """A sample of a task, played and scored by a worker process that all rollouts share."""

    class Task(ludus.Task):
        """A sample."""

        inspect: SampleReference

    Config = InspectConfig
    config: InspectConfig
    shared: InspectWorker
    replays = False  # a solver is not played again from its tool calls
    verifies_once = True

    sample: PlayedSample | None = None
    result: dict[str, Any] | None = None

    @classmethod
    @asynccontextmanager
    async def share(cls, config: InspectConfig) -> AsyncIterator[InspectWorker]:
        """Start the worker."""
        async with worker_of(config) as worker:
            yield worker

    async def verify(self, task: Task, response: Response) -> Verdict:
        """The verdict of the scorers, which judged when the solver had ended."""
        if self.result is None:
            cause = "Inspect's scorers judge a sample when its solver has played it: collect it again"
            raise Failure("cannot_judge", cause)
        return verdict_of(self.result, self.config.score)

    async def close(self) -> None:
        """Stop what is being played, and close its sandboxes."""
        if self.sample is not None:
            await self.sample.close()
