"""What an episode must release at its end: callbacks that run once, in reverse order, within one deadline."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable
from typing import Any

log = logging.getLogger("nemo_gym")

#: The seconds of a `CleanupContext` whose maker names none.
DEFAULT_SECONDS = 60.0


class CleanupHandle:
    """One callback. Whoever closes first runs it; everybody else waits for the same run."""

    def __init__(self, name: str, callback: Callable[[], Any]) -> None:
        self.name = name
        self._callback = callback
        self._running: asyncio.Task[Any] | None = None

    async def close(self) -> Any:
        """Run the callback, and raise what it raises. A caller that is cancelled leaves it running."""
        return await asyncio.shield(self._start())

    @property
    def ended(self) -> bool:
        """Whether the callback has run to its end."""
        return self._running is not None and self._running.done()

    def abandon(self) -> None:
        """Cancel a callback that runs, and never start one that does not."""
        self._start().cancel()

    def _start(self) -> asyncio.Task[Any]:
        if self._running is None:
            self._running = asyncio.create_task(self._run())
            self._running.add_done_callback(_retrieve)
        return self._running

    async def _run(self) -> Any:
        result = self._callback()
        return await result if inspect.isawaitable(result) else result


class CleanupContext:
    """The callbacks of one episode. `cleanup_timeout_seconds`, the name of the setting, is accepted, too."""

    def __init__(
        self, timeout_seconds: float = DEFAULT_SECONDS, *, cleanup_timeout_seconds: float | None = None
    ) -> None:
        self.timeout_seconds = cleanup_timeout_seconds if cleanup_timeout_seconds is not None else timeout_seconds
        self._handles: list[CleanupHandle] = []

    def register_cleanup(self, name: str, callback: Callable[[], Any]) -> CleanupHandle:
        """Call `callback` at the end of the episode, unless its handle was closed before."""
        handle = CleanupHandle(name, callback)
        self._handles.append(handle)
        return handle

    async def aclose(self) -> None:
        """Run the callbacks that nobody has run, the last one first. Errors are logged only."""
        try:
            async with asyncio.timeout(self.timeout_seconds):
                while self._handles:
                    await self._close_one(self._handles[-1])
                    self._handles.pop()
        except TimeoutError:
            names = ", ".join(handle.name for handle in self._handles if not handle.ended)
            log.error("cleanup timed out after %g s: %s", self.timeout_seconds, names)
            for handle in self._handles:
                handle.abandon()
            self._handles.clear()

    async def _close_one(self, handle: CleanupHandle) -> None:
        if handle.ended:
            return
        try:
            await handle.close()
        except Exception as error:
            log.error("cleanup %s failed: %s: %s", handle.name, type(error).__name__, error)


def _retrieve(task: asyncio.Task[Any]) -> None:
    """Mark an exception as seen: the handle's closer may be gone by then."""
    if not task.cancelled():
        task.exception()
