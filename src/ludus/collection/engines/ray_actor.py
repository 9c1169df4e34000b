"""The Ray actor of a worker: it starts the worker's process on its node and passes bytes in both directions.

The worker is the same program as with `--workers`: it plays leases on its own event loop, so a step of a rollout never
passes through Ray. A call to the actor costs more than many rollouts, so `take` waits for bytes, then a little longer
for more, and returns them together.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import time
from typing import Any, NamedTuple

from ludus.collection.engines.workers import worker_command
from ludus.runtime.processes import exit_words

#: How many calls of each method may run at once. Rollouts are not calls: a worker plays as many as its leases say.
CONCURRENCY = {"take": 1, "give": 1}

#: Seconds after which `take` returns with nothing.
WAIT_SECONDS = 5.0

#: Seconds that `take` waits for more bytes after the first, and the most bytes it returns.
GATHER_SECONDS = 0.02
MOST_BYTES = 8 << 20


class Taken(NamedTuple):
    """Output of a worker: frames, reports of its watchdog, whether it has ended, and how it died."""

    frames: bytes
    reports: bytes
    ended: bool
    died: str | None


class WorkerActor:
    """Holds one worker process. `first` is the frame with its setup."""

    def __init__(self, first: bytes, folder: str) -> None:
        ours, theirs = socket.socketpair()
        try:
            self._process: subprocess.Popen[bytes] = subprocess.Popen(
                worker_command(theirs),
                stdin=subprocess.PIPE,  # the worker ends when this process does
                stdout=subprocess.PIPE,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                cwd=folder if os.path.isdir(folder) else None,
            )
        finally:
            theirs.close()
        self._connection = ours
        self._connection.sendall(first)
        assert self._process.stdout is not None
        self._reports = self._process.stdout.fileno()
        os.set_blocking(self._reports, False)

    def give(self, data: bytes) -> None:
        """Send frames to the worker."""
        with contextlib.suppress(OSError):  # the worker died: `take` reports that
            self._connection.sendall(data)

    def take(self) -> tuple[Any, ...]:
        """What the worker has sent since the last call. Waits a while if there is nothing."""
        ready, _, _ = select.select([self._connection.fileno(), self._reports], [], [], WAIT_SECONDS)
        if not ready:
            return Taken(b"", b"", False, None)
        time.sleep(GATHER_SECONDS)
        frames, ended = self._received()
        reports = b""
        with contextlib.suppress(BlockingIOError):
            reports = os.read(self._reports, MOST_BYTES)
        return Taken(frames, reports, ended, self._death() if ended else None)

    def node(self) -> str:
        """The id of the node that this actor is on."""
        import ray

        return str(ray.get_runtime_context().get_node_id())

    def kill_node(self) -> None:
        """Kill the process that makes this machine a node: the one that started this actor's process."""
        os.kill(os.getppid(), signal.SIGKILL)

    def _received(self) -> tuple[bytes, bool]:
        parts, size = list[bytes](), 0
        while size < MOST_BYTES:
            try:
                part = self._connection.recv(1 << 20, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return b"".join(parts), False
            except ConnectionError:
                part = b""
            if not part:
                return b"".join(parts), True
            parts.append(part)
            size += len(part)
        return b"".join(parts), False

    def _death(self) -> str | None:
        code = self._process.wait()
        return exit_words(code) if code else None
