"""How a run uses its process: a loop wherever it is called from, fewer garbage collections, enough open files."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import resource
import threading
from collections.abc import Coroutine, Iterator
from typing import Any, TypeVar

from ludus.errors import UserError

T = TypeVar("T")

#: How many open files everything but connections may take.
FILES_IN_RESERVE = 128


def run_to_end(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine from plain code, also where a notebook's loop is already running on this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    return _run_on_thread(work)


def _run_on_thread(work: Coroutine[Any, Any, T]) -> T:
    ready = threading.Event()
    handle: dict[str, Any] = {}
    result: dict[str, Any] = {}

    async def main() -> T:
        handle["loop"], handle["task"] = asyncio.get_running_loop(), asyncio.current_task()
        ready.set()
        return await work

    def body() -> None:
        try:
            result["value"] = asyncio.run(main())
        except BaseException as error:
            result["error"] = error

    thread = threading.Thread(target=body, name="ludus-collect")
    thread.start()
    try:
        thread.join()
    except KeyboardInterrupt:
        ready.wait()
        handle["loop"].call_soon_threadsafe(handle["task"].cancel)
        thread.join()
        raise
    if "error" in result:
        raise result["error"]
    value: T = result["value"]
    return value


class _RareCollections:
    """The one setting that all runs of a process share: the first changes it, the last sets it back."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._before = (0, 0, 0)

    def begin(self) -> None:
        with self._lock:
            self._users += 1
            if self._users == 1:
                self._before = gc.get_threshold()
                gc.freeze()
                gc.set_threshold(50000, 20, 100)

    def end(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                gc.set_threshold(*self._before)
                gc.unfreeze()


_rare = _RareCollections()


@contextlib.contextmanager
def rare_collections() -> Iterator[None]:
    """Let Python look for reference cycles less often.

    Thousands of rollouts in flight are hundreds of thousands of live objects, and the default is to walk through
    many of them after every few hundred allocations: half of the time at 8,192 in flight. Rollouts make few cycles.
    """
    _rare.begin()
    try:
        yield
    finally:
        _rare.end()


def make_room_for(connections: int) -> None:
    """Every call in flight holds a connection, which is an open file: raise the limit on those, or say it now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections + FILES_IN_RESERVE
    if soft != resource.RLIM_INFINITY and soft < needed:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != resource.RLIM_INFINITY and soft < needed:
            raise UserError(
                f"{connections} rollouts at once need {needed} open files and this system allows {soft}",
                f"Use --concurrency {max(1, soft - FILES_IN_RESERVE)}, or raise the limit with: ulimit -n {needed}",
            )
