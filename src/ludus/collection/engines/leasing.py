"""What the engines of several workers share: one hand-out, one table of leases, one way in which results come back.

This process owns the journals and hands out work in small batches: as much as a worker wants to have, but never more
than its part of what is left, so that the workers end together. A worker plays the repeats of a task that needs a group
verdict or a branch point all by itself. Results come as lines of the journal, and are written as they are.

A worker that dies is replaced, and what it was playing is played again under new leases. A rollout that was lost with
two workers is then played alone; if it ends a third one, it fails with stage `agent` and kind `crash`.
"""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator
from time import perf_counter
from typing import TYPE_CHECKING, Any

import orjson

from ludus.collection.engines.connection import WorkerConnection
from ludus.collection.engines.frames import BodyParts
from ludus.collection.engines.leases import MAX_DEATHS, Deaths, HandOut, Leases, WorkLease
from ludus.collection.engines.playing import ADAPTIVE_START, LATE_CALLS_SECONDS
from ludus.collection.engines.setup import WorkerSetup
from ludus.collection.engines.summaries import read_summary
from ludus.collection.model_stats import added_stats
from ludus.collection.plan import TaskWork
from ludus.collection.progress import StageReport
from ludus.collection.recording import EncodedRollout
from ludus.errors import Failure, UserError
from ludus.rollout import Rollout, rollout_id
from ludus.runtime.restarts import Restarts

if TYPE_CHECKING:
    from ludus.collection.collector import Collector

#: Seconds that a worker may take to end, in addition to what its sessions may take to close.
END_SECONDS = 10.0


class LeasingEngine(ABC):
    """Plays the work of a collection with `count` workers. A subclass says how a worker is started."""

    takes_lines = True
    worker_word: str  #: what a worker is called in messages
    workers_word: str  #: and several of them
    waits_for_all: bool  #: whether the first work is handed out when all workers are ready, or when the first one is

    def __init__(self, setup: WorkerSetup, count: int, concurrency: int) -> None:
        self._setup, self._count, self._concurrency = setup, min(count, concurrency), concurrency
        closing = max((environment.limits.close for environment in setup.environments), default=0.0)
        self._stop_seconds = closing + LATE_CALLS_SECONDS + END_SECONDS
        self._leases = Leases()
        self._running: dict[int, WorkerConnection] = {}
        self._started = self._died = self._assigned = 0
        self._restarts = Restarts()
        self._stats: list[dict[str, Any]] = []
        self.on_started: Callable[[WorkerConnection], None] = lambda _: None  #: called with every worker

    def model_stats(self) -> dict[str, Any]:
        """The statistics of the workers' models, added up."""
        return added_stats(self._stats)

    def processes(self) -> dict[str, int]:
        """How many worker processes there are at a time, and how many died."""
        return {"count": self._count, "died": self._died}

    async def run(self, work: Iterator[TaskWork], collector: Collector) -> None:
        """Play all of the work."""
        self._collector = collector
        options = self._setup.options
        self._hand_out = HandOut(work, whole_tasks=options.rows.turn is not None or options.stop.by_task)
        self._count = max(1, min(self._count, collector.progress.total))
        async with collector.watchdog:
            if not self._hand_out.is_empty:
                async with self._workers():
                    await self._play()
        collector.recorder.finish()

    @contextlib.asynccontextmanager
    async def _workers(self) -> AsyncIterator[None]:
        """What must be there while workers run."""
        yield

    @abstractmethod
    async def _start(self, number: int, parts: dict[str, int]) -> WorkerConnection | None:
        """Start a worker; None if there is no work for it any more. `parts` are its parts of the run's numbers."""

    async def _play(self) -> None:
        share, more = divmod(self._concurrency, self._count)
        keeping = [asyncio.create_task(self._keep_one(share + (number < more))) for number in range(self._count)]
        try:
            done, _ = await asyncio.wait(keeping, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()
        finally:
            for task in keeping:  # cancelled once, so that it stops its worker: a second cancel kills the worker
                task.cancel()
            try:
                await asyncio.gather(*keeping, return_exceptions=True)
            finally:
                for worker in self._running.values():
                    worker.kill()

    async def _keep_one(self, concurrency: int) -> None:
        """Run a worker, and another if it dies, until there is no more work."""
        parts = {"concurrency": concurrency, "adaptive_start": max(1, ADAPTIVE_START // self._count)}
        while True:
            self._started += 1
            worker = await self._start(self._started, parts)
            if worker is None:
                return
            self.on_started(worker)
            self._running[worker.number] = worker
            watching = asyncio.create_task(self._watch(worker))
            try:
                await self._serve(worker)
                how = await worker.wait()
            except BaseException:
                await self._stop(worker)
                raise
            finally:
                watching.cancel()
                del self._running[worker.number]
                self._collector.progress.workers.pop(worker.number, None)
            if how is not None or not worker.ended:
                await self._drop_worker(worker, how or "exit code 0")
            if worker.ended:
                return

    async def _serve(self, worker: WorkerConnection) -> None:
        async for head, body in worker.frames:
            await self._take(worker, head, body)
            self._assign()

    async def _take(self, worker: WorkerConnection, head: dict[str, Any], body: memoryview) -> None:
        """Take in a frame of a worker."""
        worker.room = head.get("room", worker.room)
        if "ready" in head:
            worker.ready = True
        if "started" in head:
            self._leases.start(*head["started"])
        if "stages" in head:
            self._take_report(worker, *head["stages"])
            self._collector.watchdog.merge(head["watchdog"])
        if "model" in head:
            self._stats.append(head["model"])
        if "error" in head:
            raise UserError(head["error"])
        if "bug" in head:
            raise RuntimeError(f"a {self.worker_word} failed with {head['bug']}\n{head['traceback']}")
        if "turns" in head:
            self._take_turns(worker, head["turns"], body)
        if "resumed" in head:
            self._collector.progress.merge(head)
        if head.get("results"):
            worker.delivered = True
            parts, rollouts = BodyParts(body), []
            for number, repeat, length, summary in head["results"]:
                line, lease = parts.next(length), self._leases.finish(number, repeat)
                if lease is not None:
                    name = rollout_id(lease.work.task_id, repeat)
                    rollouts.append(EncodedRollout(line, read_summary(lease.job, summary), lease.work, name))
            await self._collector.recorder.add_encoded(rollouts)

    def _take_turns(self, worker: WorkerConnection, turns: list[list[int]], body: memoryview) -> None:
        """Write the turns of rollouts that a worker plays, and tell the worker that they are safe."""
        parts, journal = BodyParts(body), self._collector.recorder.turns
        for number, repeat, length, count in turns:
            line, lease = parts.next(length), self._leases.playing(number, repeat)
            if lease is not None and journal is not None:
                lease.went_on(repeat, count)
                journal.add(rollout_id(lease.work.task_id, repeat), line)
        if journal is not None:
            journal.flush()
        worker.confirm_turns(len(turns))

    def _take_report(
        self, worker: WorkerConnection, stages: dict[str, int], changed: float, closing: float | None, limit: int | None
    ) -> None:
        now, report = perf_counter(), StageReport()
        report.stages.update(stages)
        report.changed = now - changed
        report.closing_since = now - closing if closing is not None else None
        report.limit = limit
        self._collector.progress.workers[worker.number] = report

    async def _watch(self, worker: WorkerConnection) -> None:
        async for line in worker.reports():
            self._collector.watchdog.merge(orjson.loads(line))
            with contextlib.suppress(OSError):  # the terminal is gone
                self._collector.watchdog.on_blocked()

    def _assign(self) -> None:
        """Give the workers work. The first time, when all of them are ready."""
        ready = [worker for worker in self._running.values() if worker.ready and not worker.ended]
        if self.waits_for_all and not self._assigned and len(ready) < self._count:
            return
        if ready and self._collector.progress.workers_ready is None:
            self._collector.progress.workers_ready = perf_counter()
        for worker in ready:
            self._refill(worker, len(ready))
        if not self._leases.missing and self._hand_out.is_empty:
            for worker in ready:
                worker.end()
            self._nothing_left()

    def _nothing_left(self) -> None:  # noqa: B027  (most engines have nothing to do)
        """All work is done. Workers that are not ready yet are told when they are."""

    def _refill(self, worker: WorkerConnection, workers: int) -> None:
        """Give a worker as much as it wants, up to its part of what is left."""
        hand_out, leases = self._hand_out, self._leases
        if hand_out.has_alone or leases.plays_alone(worker.number):
            if hand_out.has_alone and not leases.missing_of(worker.number):
                self._grant(worker, [hand_out.take_alone()])
            return
        progress = self._collector.progress
        left = max(progress.total - progress.skipped - self._assigned, 0)
        part = max(1, -(-(leases.missing + left) // workers))
        room = min(worker.room, part) - leases.missing_of(worker.number)
        taken = []
        while room > 0 and (work := hand_out.take(room)) is not None:
            taken.append(work)
            room -= len(work[0].repeats)
            self._assigned += len(work[0].repeats)
        if taken:
            self._grant(worker, taken)

    def _grant(self, worker: WorkerConnection, taken: list[tuple[TaskWork, dict[int, Deaths]]]) -> None:
        leases = [self._leases.grant(worker.number, work, deaths) for work, deaths in taken]
        worker.give(leases, self._collector.recorder)

    async def _drop_worker(self, worker: WorkerConnection, how: str) -> None:
        """Count a worker that died, put back what it was playing, and wait until another may start."""
        self._died += 1
        ended = self._leases.revoke(worker.number)
        lost = sum(len(lease.missing) for lease in ended)
        worked = bool(lost or worker.delivered)
        pause = 0.0 if worker.lost_with_machine else self._restarts.pause(worked=worked)
        if pause is None:
            hint = "Run it without workers to see more"
            raise UserError(f"{self.workers_word} end with {how} before they can play a rollout", hint)
        self._assigned -= lost
        self._collector.progress.notices.append(
            f"a {self.worker_word} ended with {how}: its {lost} rollouts in flight are played again"
        )
        for lease in ended:
            given_up = [self._crashed(lease, repeat, how) for repeat in self._hand_out.put_back(lease)]
            for rollout in given_up:
                if (waits := self._collector.recorder.add(rollout)) is not None:
                    await waits
            self._assigned += len(given_up)
        self._assign()
        await asyncio.sleep(pause)

    def _crashed(self, lease: WorkLease, repeat: int, how: str) -> Rollout:
        rollout = Rollout(lease.work.job(self._setup.options.play.seed, repeat))
        cause = f"{MAX_DEATHS} {self.workers_word} ended while they played it, the last with {how}"
        rollout.fail(Failure("crash", cause, stage="agent"))
        return rollout

    async def _stop(self, worker: WorkerConnection) -> None:
        """Stop a worker, and record what it has finished. If this is cancelled too, kill it."""
        try:
            worker.stop()
            async with asyncio.timeout(self._stop_seconds):
                async for head, body in worker.frames:
                    with contextlib.suppress(UserError, OSError, RuntimeError):
                        await self._take(worker, head, body)
                await worker.wait()
        except TimeoutError:
            pass
        finally:
            worker.kill()
            await worker.wait()
