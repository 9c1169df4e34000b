"""How a run sets up its process: an event loop, and a higher limit on open files."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from ludus.errors import UserError

T = TypeVar("T")

#: Open files reserved for everything but connections.
FILES_IN_RESERVE = 128


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine like `asyncio.run`, on uvloop if it is installed (benchmarks/bench.py)."""
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


def raise_file_limit() -> int:
    """Raise the soft limit on open files to the hard limit. Returns the new limit; child processes inherit it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):  # macOS refuses an unlimited soft limit
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
