"""Several worker processes on the same sockets. A worker that dies is started again.

The supervisor owns the sockets, so pending connections survive the death of a worker. Only the sessions and rollouts of
the dead worker are lost: its sessions answer 410, and its rollouts fail.
"""

from __future__ import annotations

import asyncio
import logging
import math
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import orjson

from ludus.errors import UserError
from ludus.http.guard import LOOPBACK
from ludus.runtime.restarts import Restarts
from ludus.serve.plan import Plan
from ludus.serve.site import Sockets

log = logging.getLogger("ludus.serve")

#: A worker that was ready for so many seconds has worked: its death is not a failed start.
WORKED_SECONDS = 60.0
STOP_SECONDS = 20.0
LONGEST_FOLDER = 72


@dataclass
class _Worker:
    number: int
    process: asyncio.subprocess.Process | None = None
    waiting_for: str = "its process"
    ready: bool = False
    ready_since: float = math.inf
    restarts: int = 0


class Workers:
    """The worker processes of a plan. `say` prints a message to the operator."""

    def __init__(self, plan: Plan, sockets: Sockets, say: Callable[[str], None] = log.warning) -> None:
        self._plan = plan
        self._sockets = sockets
        self._say = say
        self._workers = [_Worker(number) for number in range(plan.workers)]
        self._folder = ""
        self._watching: list[asyncio.Task[None]] = []
        self._stopping = False
        self._failed: asyncio.Future[None] | None = None

    async def start(self) -> None:
        """Start all workers, and return when all are ready."""
        self._folder = _short_folder()
        self._failed = asyncio.get_running_loop().create_future()
        self._watching = [asyncio.create_task(self._watch(worker)) for worker in self._workers]
        for watching in self._watching:
            watching.add_done_callback(self._watched)
        while not all(worker.ready for worker in self._workers):
            if self._failed.done():
                await self.stop()
                self._failed.result()
            await asyncio.sleep(0.01)

    async def stop(self) -> None:
        """Terminate all workers, and kill those that are still alive after `STOP_SECONDS`."""
        self._stopping = True
        processes = [worker.process for worker in self._workers if worker.process is not None]
        for process in processes:
            if process.returncode is None:
                process.terminate()
        waiting = [asyncio.create_task(process.wait()) for process in processes]
        if waiting:
            _, late = await asyncio.wait(waiting, timeout=STOP_SECONDS)
            for process in processes if late else ():
                if process.returncode is None:
                    process.kill()
            await asyncio.gather(*waiting)
        for task in self._watching:
            task.cancel()
        await asyncio.gather(*self._watching, return_exceptions=True)
        shutil.rmtree(self._folder, ignore_errors=True)

    def progress(self) -> dict[str, Any]:
        """The state of each worker. Pids only on loopback: `/health` needs no token."""
        tells_pids = self._plan.host in LOOPBACK
        workers = [
            {
                "worker": worker.number,
                **({"pid": worker.process.pid if worker.process else None} if tells_pids else {}),
                "ready": worker.ready,
                "waiting_for": worker.waiting_for,
                "restarts": worker.restarts,
            }
            for worker in self._workers
        ]
        ready = all(worker.ready for worker in self._workers)
        return {"status": "ok" if ready else "starting", "workers": workers}

    async def failed(self) -> None:
        """Wait forever, or raise an error when a worker keeps dying."""
        assert self._failed is not None
        await asyncio.shield(self._failed)

    def _watched(self, watching: asyncio.Task[None]) -> None:
        """Called when the task that watches a worker has ended: pass on its error."""
        error = None if watching.cancelled() else watching.exception()
        if error is not None and self._failed is not None and not self._failed.done():
            self._failed.set_exception(error)

    async def _watch(self, worker: _Worker) -> None:
        restarts = Restarts()
        while True:
            error = await self._run(worker)
            if self._stopping:
                return
            assert worker.process is not None
            status = worker.process.returncode
            pause = restarts.pause(worked=monotonic() - worker.ready_since >= WORKED_SECONDS)
            if error is not None or pause is None:
                why = error or f"worker {worker.number} keeps dying (last with status {status})"
                if self._failed is not None and not self._failed.done():
                    self._failed.set_exception(UserError(why))
                return
            worker.restarts += 1
            self._say(f"worker {worker.number} died with status {status}: starting it again")
            await asyncio.sleep(pause)

    async def _run(self, worker: _Worker) -> str | None:
        """Run a worker process until it ends, and return the error that it reported, or None."""
        worker.ready, worker.ready_since, worker.waiting_for = False, math.inf, "its process"
        fds = {name: listening.fileno() for name, listening in self._sockets.items()}
        worker.process = process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "ludus.serve.worker",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            pass_fds=list(fds.values()),
        )
        assert process.stdin is not None
        assert process.stdout is not None
        assignment = {"plan": self._plan.model_dump(), "worker": worker.number, "peers": self._folder, "sockets": fds}
        process.stdin.write(orjson.dumps(assignment) + b"\n")
        error: str | None = None
        async for line in process.stdout:
            report = orjson.loads(line)
            worker.waiting_for = report.get("waiting_for", worker.waiting_for)
            error = report.get("error", error)
            if report.get("ready"):
                worker.ready, worker.ready_since, worker.waiting_for = True, monotonic(), ""
        await process.wait()
        worker.ready = False
        return error


def _short_folder() -> str:
    """A temporary folder with a short path: the path of a Unix socket may have about 100 characters."""
    folder = tempfile.mkdtemp(prefix="ludus-")
    if len(folder) <= LONGEST_FOLDER:
        return folder
    Path(folder).rmdir()
    return tempfile.mkdtemp(prefix="ludus-", dir="/tmp")
