"""The asyncio tasks of `Playing`: one for each rollout in flight. Their number can grow while they work."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class Crew:
    """Asyncio tasks that all do the same work. `done` ends with the last of them, or with an error."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self.tasks: list[asyncio.Task[None]] = []
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.closed = False
        self._work, self._left = work, 0

    def grow(self, count: int) -> None:
        """Start tasks until there are `count`, unless the work has ended."""
        if self.closed or self.done.done():
            return
        joining = [asyncio.create_task(self._work()) for _ in range(count - len(self.tasks))]
        self._left += len(joining)
        self.tasks += joining
        for task in joining:
            task.add_done_callback(self._leave)

    def _leave(self, task: asyncio.Task[None]) -> None:
        self._left -= 1
        error = None if task.cancelled() else task.exception()
        if self.done.done():
            return
        if task.cancelled():
            self.done.cancel()
        elif error is not None:
            self.done.set_exception(error)
        elif not self._left:
            self.done.set_result(None)
