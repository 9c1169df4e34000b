"""The engine of a Ray cluster: Ray places workers, and batches of leases and of results go to and fro.

Actors are asked for gradually: two at first, then as many as there are ready ones. What is asked for and not placed is
the demand that an autoscaler sees. Work is handed out as soon as the first actor is ready, and in batches that last a
moment, so a node that joins later gets its part. When nothing is left, what is still asked for is taken back.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from typing import Any

from ludus.collection.engines.connection import WorkerConnection
from ludus.collection.engines.frames import frame
from ludus.collection.engines.leasing import LeasingEngine
from ludus.collection.engines.ray_actor import CONCURRENCY, WorkerActor
from ludus.collection.engines.ray_code import Code
from ludus.collection.engines.ray_worker import RayWorker
from ludus.collection.engines.setup import WorkerSetup
from ludus.folder import WorkerNeeds
from ludus.runtime.ray_cluster import LOCAL, connected, is_connected

#: How many actors are asked for at once, at first.
FIRST_ACTORS = 2

#: Milliseconds of work that a worker asks for in advance: what a call takes on a busy machine.
AHEAD_MS = 300

#: How many sessions a worker holds if its environment does not say it.
SESSIONS = 64

#: Seconds between two messages about actors that Ray has not placed.
SAY_EVERY = 15.0


class RayEngine(LeasingEngine):
    """Plays the work of a collection in actors. `count` is the number of actors; None derives it from `concurrency`
    and the sessions per worker. `runtime` is a Ray runtime environment for the actors, beside what they need anyway."""

    worker_word, workers_word = "Ray worker", "Ray workers"
    waits_for_all = False

    def __init__(
        self,
        setup: WorkerSetup,
        address: str,
        count: int | None,
        concurrency: int,
        runtime: dict[str, Any] | None = None,
    ) -> None:
        self._needs = WorkerNeeds.of_all(environment.worker for environment in setup.environments)
        super().__init__(setup, count or _actors(address, self._needs, concurrency), concurrency)
        if self._needs.sessions is not None:
            self._concurrency = min(concurrency, self._count * self._needs.sessions)
        self._address = address
        self._code = Code(setup, shipped=address != LOCAL and not is_connected())
        self._runtime = self._code.runtime_environment(runtime or {}, self._needs.packages)
        self._pending: set[RayWorker] = set()
        self._killed: set[str] = set()  # the nodes that were killed on purpose
        self._changed = asyncio.Event()
        self._over = False

    @contextlib.asynccontextmanager
    async def _workers(self) -> AsyncIterator[None]:
        needs, count = self._needs, self._count
        own = {name: amount * count for name, amount in needs.resources.items()}
        with self._code:
            async with connected(
                self._address, self._runtime, self._say, cpus=needs.cpus * count, resources=own
            ) as self._ray:
                actor = self._ray.remote(concurrency_groups=CONCURRENCY, max_concurrency=1)(WorkerActor)
                self._actor = actor.options(
                    num_cpus=needs.cpus,
                    num_gpus=needs.gpus,
                    memory=needs.memory_bytes,
                    resources=needs.resources,
                    max_restarts=0,
                    max_task_retries=0,
                    scheduling_strategy="SPREAD",
                )
                waiting = asyncio.create_task(self._say_what_is_missing())
                try:
                    yield
                finally:
                    waiting.cancel()

    async def _start(self, number: int, parts: dict[str, int]) -> WorkerConnection | None:
        while not self._over and len(self._pending) >= max(FIRST_ACTORS, self._ready):
            self._changed.clear()
            await self._changed.wait()
        if self._over:
            return None
        first = frame({**parts, "ahead_ms": AHEAD_MS}, [self._code.setup])
        worker = RayWorker(number, self._ray, self._actor.remote(first, os.getcwd()), self._killed)
        self._pending.add(worker)
        return worker

    @property
    def _ready(self) -> int:
        return sum(worker.ready for worker in self._running.values())

    def _assign(self) -> None:
        if settled := {worker for worker in self._pending if worker.ready or worker.number not in self._running}:
            self._pending -= settled
            self._changed.set()
        super()._assign()

    def _nothing_left(self) -> None:
        self._over = True
        for worker in self._pending:
            worker.abandon()
        self._changed.set()

    def _say(self, text: str) -> None:
        self._collector.progress.notices.append(text)

    async def _say_what_is_missing(self) -> None:
        """Say which actors Ray has not placed, and what the cluster has."""
        while True:
            await asyncio.sleep(SAY_EVERY)
            waiting = sum(not worker.ready for worker in self._running.values())
            if waiting and not self._ready:
                have = await asyncio.to_thread(self._ray.cluster_resources)
                free = await asyncio.to_thread(self._ray.available_resources)
                self._say(f"waiting for Ray to start {waiting} workers with {self._needs} each: {_of(free, have)}")


def _actors(address: str, needs: WorkerNeeds, concurrency: int) -> int:
    """How many actors are wanted if nobody says it: on this machine one per core."""
    if address == LOCAL:
        return max(1, int((os.cpu_count() or 1) / max(needs.cpus, 0.01)))
    return -(-concurrency // (needs.sessions or SESSIONS))


def _of(free: dict[str, float], have: dict[str, float]) -> str:
    """What a cluster has of the resources that it counts, without those that stand for nodes."""
    names = [name for name in have if ":" not in name and name != "object_store_memory"]
    return "free are " + ", ".join(f"{free.get(name, 0):g} of {have[name]:g} {name}" for name in sorted(names))
