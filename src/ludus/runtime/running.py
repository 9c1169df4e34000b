"""What a run changes in its process: an event loop, fewer garbage collections, a higher limit on open files."""

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

#: Open files that are left for everything but connections.
FILES_IN_RESERVE = 128


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine like `asyncio.run`, on uvloop if it is installed: reading and writing sockets costs half."""
    try:
        import uvloop
    except ImportError:  # Windows
        return asyncio.run(work)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


def run_to_end(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine from synchronous code, even if an event loop runs on this thread (as in a notebook)."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return run(work)
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
            result["value"] = run(main())
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


class _GarbageCollection:
    """Python's thresholds, which all runs of a process share: the first run raises them, the last restores them."""

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


_garbage_collection = _GarbageCollection()


@contextlib.contextmanager
def fewer_garbage_collections() -> Iterator[None]:
    """Let Python look for reference cycles less often.

    With thousands of rollouts in flight, hundreds of thousands of objects are alive. By default Python walks through
    many of them after every few hundred allocations: at 8,192 in flight, half of the time. Rollouts make few cycles.
    """
    _garbage_collection.begin()
    try:
        yield
    finally:
        _garbage_collection.end()


def raise_file_limit() -> int:
    """Raise the soft limit on open files to the hard limit. Returns the limit; that of child processes is the same."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):  # macOS has no hard limit, and refuses to set none
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def allow_open_files(connections: int) -> None:
    """Raise the limit on open files, since each connection is one. Raises a UserError if the system forbids it."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections + FILES_IN_RESERVE
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = raise_file_limit()
        if soft != resource.RLIM_INFINITY and soft < needed:
            raise UserError(
                f"{connections} rollouts at once need {needed} open files and this system allows {soft}",
                f"Use --concurrency {max(1, soft - FILES_IN_RESERVE)}, or raise the limit with: ulimit -n {needed}",
            )
