"""The engine of worker processes on this machine, each with its own event loop and a connection to the collection."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from ludus.collection.engines.connection import WorkerConnection
from ludus.collection.engines.frames import READ_AHEAD, Frames, frame
from ludus.collection.engines.leasing import LeasingEngine
from ludus.collection.engines.setup import WorkerSetup
from ludus.runtime.processes import exit_words

#: The program of a worker. It imports Ludus from the same place as this process. PYTHONPATH is not used, because the
#: environment's own child processes would inherit it.
_PROGRAM = "import sys; sys.path[:] = sys.argv[2:]; from ludus.collection.engines.worker import main; main()"

#: The longest line that the watchdog of a worker writes.
_LONGEST_REPORT = 1 << 20


def worker_command(connection: socket.socket) -> list[str]:
    """The command of a worker that inherits a connection."""
    return [sys.executable, "-P", "-c", _PROGRAM, str(connection.fileno()), *sys.path]


class WorkerProcess(WorkerConnection):
    """A worker process on this machine."""

    def __init__(self, number: int, process: asyncio.subprocess.Process, streams: tuple[Any, Any]) -> None:
        super().__init__(number)
        self._process = process
        reader, self._writer = streams
        self.frames = Frames(reader)

    @classmethod
    async def start(cls, number: int, setup: bytes, **parts: int) -> WorkerProcess:
        """Start a process and send its setup. `parts` are its parts of the collection's numbers."""
        ours, theirs = socket.socketpair()
        try:
            process = await asyncio.create_subprocess_exec(
                *worker_command(theirs),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                pass_fds=[theirs.fileno()],
                limit=_LONGEST_REPORT,
                start_new_session=True,
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        worker = cls(number, process, await asyncio.open_connection(sock=ours, limit=READ_AHEAD))
        worker._writer.write(frame(parts, [setup]))
        return worker

    async def reports(self) -> AsyncIterator[bytes]:
        """What the watchdog of the worker reports while the worker's event loop is blocked."""
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            yield line

    async def wait(self) -> str | None:
        """Wait for the end of the process. Returns its exit code or signal in words; None if it was 0."""
        self._writer.close()
        code = await self._process.wait()
        return exit_words(code) if code else None

    def kill(self) -> None:
        """Kill the process and everything it started in its session."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _send(self, data: bytes) -> None:
        if not self._writer.is_closing():
            self._writer.write(data)


class WorkerEngine(LeasingEngine):
    """Plays the work of a collection in `count` processes."""

    worker_word, workers_word = "worker process", "worker processes"
    waits_for_all = True

    def __init__(self, setup: WorkerSetup, count: int, concurrency: int) -> None:
        super().__init__(setup, count, concurrency)
        self._encoded = setup.encode()

    async def _start(self, number: int, parts: dict[str, int]) -> WorkerConnection | None:
        return await WorkerProcess.start(number, self._encoded, **parts)
