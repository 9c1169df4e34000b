"""The engine of several processes on this machine, each with its own event loop."""

from __future__ import annotations

from ludus.collection.engines.connection import WorkerConnection
from ludus.collection.engines.leasing import LeasingEngine
from ludus.collection.engines.setup import WorkerSetup
from ludus.collection.engines.worker_process import WorkerProcess


class WorkerEngine(LeasingEngine):
    """Plays the work of a collection in `count` processes."""

    worker_word, workers_word = "worker process", "worker processes"
    waits_for_all = True

    def __init__(self, setup: WorkerSetup, count: int, concurrency: int) -> None:
        super().__init__(setup, count, concurrency)
        self._encoded = setup.encode()

    async def _start(self, number: int, parts: dict[str, int]) -> WorkerConnection | None:
        return await WorkerProcess.start(number, self._encoded, **parts)
