"""A worker process of a collection: it plays the rollouts that it is given, and sends each as its line of the journal.

`worker_process.py` starts it, with one end of a socket pair as its first argument. What an environment prints goes to
stderr; the original stdout carries reports of the watchdog, whose thread sends them also while the event loop is
blocked. When stdin ends, the collection is gone: SIGIO then ends this process, even inside C code that never returns to
Python.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import select
import signal
import socket
import sys
import traceback
from time import perf_counter

import orjson

from ludus.collection.branching import BranchPoint
from ludus.collection.engines.frames import READ_AHEAD, BodyParts, Frames, frame
from ludus.collection.engines.leased_jobs import LeasedJobs
from ludus.collection.engines.outbox import AHEAD_SECONDS, Outbox, TurnOutbox
from ludus.collection.engines.playing import Playing, PlaySettings
from ludus.collection.engines.setup import WorkerSetup
from ludus.collection.plan import TaskWork
from ludus.collection.progress import Progress, StageReport
from ludus.collection.watchdog import LoopWatchdog
from ludus.data.row_checks import parse_row
from ludus.errors import UserError
from ludus.runtime.garbage import fewer_garbage_collections
from ludus.runtime.installed import packaged
from ludus.runtime.running import run
from ludus.runtime.unawaited import explain_unawaited

#: Seconds between two reports on the rollouts in flight.
REPORT_SECONDS = 0.25


def main() -> None:
    """Play until the collection says that there is no more work, or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the collection handles Ctrl-C
    explain_unawaited()
    _end_with_the_collection()
    reports = os.dup(1)
    os.dup2(2, 1)
    connection = socket.socket(fileno=int(sys.argv[1]))
    with fewer_garbage_collections():
        run(_run(connection, reports))


def _end_with_the_collection() -> None:
    """Ask for SIGIO when stdin ends, whose other end only the collection holds. What runs here reads an empty stdin."""
    lifeline = os.dup(0)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    if sys.platform != "linux":  # elsewhere SIGIO is ignored by default
        signal.signal(signal.SIGIO, lambda *_: os._exit(1))
    fcntl.fcntl(lifeline, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(lifeline, fcntl.F_SETFL, fcntl.fcntl(lifeline, fcntl.F_GETFL) | os.O_ASYNC)
    if select.select([lifeline], [], [], 0)[0]:
        os._exit(1)


async def _run(connection: socket.socket, reports: int) -> None:
    reader, writer = await asyncio.open_connection(sock=connection, limit=READ_AHEAD)
    received = Frames(reader)
    try:
        parts, body = await anext(received)
        setup, ahead = WorkerSetup.decode(body), parts.pop("ahead_ms", AHEAD_SECONDS * 1000) / 1000
        worker = _Worker(setup, setup.play_settings(**parts), writer, reports, ahead)
        await worker.run(received)
    except asyncio.CancelledError:  # told to stop
        pass
    except UserError as error:
        writer.write(frame({"error": str(error)}))
    except BaseException as error:
        text = "".join(traceback.format_exception(error))
        writer.write(frame({"bug": f"{type(error).__name__}: {error}", "traceback": text}))
    with contextlib.suppress(ConnectionError):
        await writer.drain()
        writer.close()
        await writer.wait_closed()


class _Worker:
    def __init__(
        self, setup: WorkerSetup, settings: PlaySettings, writer: asyncio.StreamWriter, reports: int, ahead: float
    ) -> None:
        self._setup, self._settings, self._writer, self._reports = setup, settings, writer, reports
        environments = setup.wired()
        self._progress, self._watchdog = Progress(), LoopWatchdog()
        self._watchdog.on_blocked = self._report_blocking
        if setup.options.play.chaos is not None:
            faults = packaged("ludus.faults", "worker", "--chaos", "bench")
            injector = faults(setup.options.play.chaos, self._progress.marks)
            settings.model = injector.model(settings.model)
            environments = {name: injector.environment(local) for name, local in environments.items()}
        self._environments = environments
        self._outbox = Outbox(writer, self._plays_at_once, ahead, self._progress.drain)
        self._jobs = LeasedJobs(self._outbox.lease_of, self._started, self._outbox.flush)
        turns = TurnOutbox(self._outbox) if setup.checkpoint else None
        self._playing = Playing(settings, self._outbox, self._progress, self._watchdog, turns)

    async def run(self, received: Frames) -> None:
        """Play the leases that come. Raises CancelledError if the collection stops the run."""
        reporting: asyncio.Task[None] | None = None
        try:
            async with self._playing:
                self._writer.write(frame({"ready": os.getpid(), "room": self._outbox.room()}))
                playing = asyncio.create_task(self._playing.play(self._jobs, self._settings.concurrency))
                receiving = asyncio.create_task(self._receive(received, playing))
                reporting = asyncio.create_task(self._report())
                try:
                    await asyncio.wait({playing, receiving}, return_when=asyncio.FIRST_COMPLETED)
                    if receiving.done():
                        receiving.result()  # raises: receiving ends by itself only with an error
                    await playing
                finally:
                    for task in (playing, receiving):
                        task.cancel()
                    await asyncio.gather(playing, receiving, return_exceptions=True)
        finally:
            if reporting is not None:
                reporting.cancel()
            self._outbox.flush()
            self._send_report()
            self._writer.write(frame({"model": self._settings.model.stats()}))

    async def _receive(self, received: Frames, playing: asyncio.Task[None]) -> None:
        turn = self._setup.options.rows.turn
        async for head, body in received:
            if "stop" in head:
                playing.cancel()
                continue
            if "end" in head:
                self._jobs.end()
            if "saved" in head:
                self._outbox.turns_saved(head["saved"])
            parts = BodyParts(body)
            for number, task_id, environment, repeats, good, length, recorded, turns, alone in head.get("leases", ()):
                line = bytes(parts.next(length))
                attempts = {repeat: attempt for repeat, attempt in repeats}
                row, point = parse_row("a row", line), None
                if turn is not None:
                    point = BranchPoint.of_line(line, turn)
                    row = point.row
                work = TaskWork(task_id, self._environments[environment], row, attempts, point=point, good=good)
                work.recorded = [bytes(parts.next(size)) for size in recorded]
                work.turns = {repeat: bytes(parts.next(size)) for repeat, size in turns}
                self._jobs.add(number, self._playing.jobs(work), len(attempts), alone=alone)
        os._exit(1)  # the connection ended: the collection is gone

    def _plays_at_once(self) -> int:
        gate, waiting = self._playing.gate, self._progress.in_groups()
        limit = self._settings.concurrency
        if gate is not None:  # a quarter more: the limit may grow before new work arrives
            limit = min(limit, gate.adaptive.limit + gate.adaptive.limit // 4)
        return limit + waiting

    def _started(self, number: int, repeat: int) -> None:
        self._writer.write(frame({"started": [number, repeat]}))

    async def _report(self) -> None:
        while True:
            await asyncio.sleep(REPORT_SECONDS)
            self._outbox.flush()
            self._send_report()

    def _send_report(self) -> None:
        """Tell in which stages the rollouts are, as ages in seconds, and what the watchdog saw."""
        now, report = perf_counter(), StageReport.of(self._progress.in_flight, self._progress.in_groups())
        closing = now - report.closing_since if report.closing_since is not None else None
        stages = [report.stages, now - report.changed, closing, self._progress.adaptive_limit()]
        self._writer.write(frame({"stages": stages, "watchdog": self._watchdog.drain(), **self._progress.drain()}))

    def _report_blocking(self) -> None:
        """Tell what blocks the event loop. Called in the watchdog's thread."""
        os.write(self._reports, orjson.dumps(self._watchdog.drain()) + b"\n")
