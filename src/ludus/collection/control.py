"""Control of a running collection from outside: pause, resume, fewer or more rollouts at once, stop cleanly.

Any process that may write the run's folder can put a request into `control.json` there, as `ludus view` does.
`ludus collect` polls the file every second. A request names its target process, so the file of an earlier run has no
effect.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson

from ludus.collection.engines.jobs import AllJobs
from ludus.rollout import Job
from ludus.runtime.regular_files import read_regular
from ludus.store.drafts import write_whole

LOOK_SECONDS = 1.0


class Control:
    """The requests to a running collection. `limit` is the most rollouts at once; None is the initial number.

    `raise_to` lets the engine play more rollouts at once than at its start.
    """

    def __init__(self) -> None:
        self.paused = False
        self.limit: int | None = None
        self.raise_to: Callable[[int], None] | None = None
        self._changed = asyncio.Event()

    def admits(self, in_flight: int) -> bool:
        """Whether another rollout may begin."""
        return not self.paused and (self.limit is None or in_flight < self.limit)

    def set(self, *, paused: bool, limit: int | None) -> None:
        """Follow a request."""
        self.paused, self.limit = paused, limit
        if limit is not None and self.raise_to is not None:
            self.raise_to(limit)
        self.wake()

    def wake(self) -> None:
        """Wake all waiters."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait(self) -> None:
        """Wait for the next request."""
        await self._changed.wait()


class ControlledJobs(AllJobs):
    """Jobs that are held back while a collection is paused, or has its maximum of rollouts in flight."""

    def __init__(self, jobs: Iterator[Job], control: Control, in_flight: Callable[[], int]) -> None:
        super().__init__(jobs)
        self._control, self._in_flight = control, in_flight

    def take(self) -> Job | None:
        """The next job; None at the end, and while none may begin."""
        control = self._control
        if (control.paused or control.limit is not None) and not control.admits(self._in_flight()):
            return None
        job = next(self._jobs, None)
        if job is None:
            self.ended = True
            control.wake()  # waiting slots are no longer needed
        return job

    async def wait(self) -> None:
        """Wait until a job may begin."""
        await self._control.wait()


async def follow(path: Path, control: Control, stop: Callable[[], Any]) -> None:
    """Follow the requests in a file until cancelled. A file of an earlier run is deleted."""
    forget(path)
    seen = 0
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        seen, request = _read_newer(path, seen)
        if request.get("pid") != os.getpid():
            continue
        limit = request.get("concurrency")
        control.set(paused=request.get("paused") is True, limit=limit if type(limit) is int and limit > 0 else None)
        if request.get("stop") is True:
            stop()


def forget(path: Path) -> None:
    """Delete a control file: its collection has ended."""
    with contextlib.suppress(OSError):
        path.unlink()


def _read_newer(path: Path, seen: int) -> tuple[int, dict[str, Any]]:
    """When a file was changed and its request; an empty request if it has not changed since `seen`."""
    try:
        changed = path.stat().st_mtime_ns
        request = orjson.loads(read_regular(path)) if changed != seen else {}
    except (OSError, orjson.JSONDecodeError):
        return seen, {}
    return changed, request if isinstance(request, dict) else {}


def ask(path: Path, pid: int, *, paused: bool, concurrency: int | None, stop: bool) -> None:
    """Put a request for a process into a control file."""
    request = {"pid": pid, "paused": paused, "concurrency": concurrency, "stop": stop}
    write_whole(path, orjson.dumps(request) + b"\n")
