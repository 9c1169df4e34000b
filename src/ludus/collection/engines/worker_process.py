"""One worker process, seen from the collection: its process, the connection to it, and what it last reported."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from typing import Any

from ludus.collection.engines.frames import READ_AHEAD, Frames, frame
from ludus.collection.engines.leases import WorkLease
from ludus.collection.recording import Recorder

#: The program of a worker. It imports Ludus from where this process did. PYTHONPATH is left alone: the programs that an
#: environment starts would inherit it.
_PROGRAM = "import sys; sys.path[:] = sys.argv[2:]; from ludus.collection.engines.worker import main; main()"

#: The longest line that the watchdog of a worker writes.
_LONGEST_REPORT = 1 << 20


class WorkerProcess:
    """A worker process. `number` is its own: a process that replaces it has another."""

    def __init__(self, number: int, process: asyncio.subprocess.Process, streams: tuple[Any, Any]) -> None:
        self.number = number
        self.room = 0  #: how many rollouts it wants to have
        self.ready = False
        self.delivered = False  #: whether it has sent a result
        self.ended = False  #: whether it was told that there is no more work
        self._process = process
        reader, self._writer = streams
        self.frames = Frames(reader)  #: what the worker sends, until it ends

    @classmethod
    async def start(cls, number: int, setup: bytes, **parts: int) -> WorkerProcess:
        """Start a process and send its setup. `parts` are its parts of the collection's numbers."""
        ours, theirs = socket.socketpair()
        try:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-c", _PROGRAM, str(theirs.fileno()), *sys.path),
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

    def give(self, leases: Iterable[WorkLease], recorder: Recorder) -> None:
        """Send leases: the row of each, the recorded rollouts of its task, and the saved turns of its repeats."""
        heads, body = [], []
        for lease in leases:
            work = lease.work
            recorded = [recorder.recorded_line(each) for each in work.recorded]
            repeats = list(work.repeats.items())
            sizes = [len(line) for line in recorded]
            turns = recorder.with_turns(work).turns
            turn_sizes = [[repeat, len(lines)] for repeat, lines in turns.items()]
            name, size = work.environment.name, len(work.line)
            head = [lease.number, work.task_id, name, repeats, work.good, size, sizes, turn_sizes, lease.is_alone]
            heads.append(head)
            body += [work.line, *recorded, *turns.values()]
            work.turns = {}  # sent: they may be large
        self._send({"leases": heads}, body)

    def confirm_turns(self, count: int) -> None:
        """Tell the worker that so many of its turns are written."""
        self._send({"saved": count})

    def end(self) -> None:
        """Tell the worker that there is no more work."""
        self.ended = True
        self._send({"end": True})

    def stop(self) -> None:
        """Tell the worker to cancel its rollouts, to close their sessions, and to end."""
        self._send({"stop": True})

    async def wait(self) -> int:
        """Wait for the end of the process. Returns its exit code."""
        self._writer.close()
        return await self._process.wait()

    def kill(self) -> None:
        """Kill the process and everything it started in its session."""
        if self._process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def _send(self, head: Any, body: Iterable[bytes] = ()) -> None:
        if not self._writer.is_closing():  # a worker that died is noticed where its frames are read
            self._writer.write(frame(head, body))
