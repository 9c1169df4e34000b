"""Deadlines for many short tasks, at the price of one timer for all of them.

A timer for each request would be a tenth of what a small one costs. Here a request writes down until when it may take,
and one look a second finds those that are late and cancels them: a deadline may be a second late, and is never early.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from time import monotonic
from typing import Any, TypeVar

from ludus.runtime.boundary import in_time

T = TypeVar("T")

#: Deadlines this close get a timer of their own, since a second would be a long time for them.
SHORT = 10.0
_EVERY = 1.0


class _Watch:
    """The deadlines of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._until: dict[asyncio.Task[Any], float] = {}
        self._late: set[asyncio.Task[Any]] = set()
        self._looking = False

    async def within(self, seconds: float, work: Awaitable[T]) -> T:
        task = asyncio.current_task()
        assert task is not None
        if task in self._until:  # a deadline within a deadline is rare
            return await in_time(seconds, work)
        self._until[task] = monotonic() + seconds
        if not self._looking:
            self._looking = True
            self._loop.call_later(_EVERY, self._look)
        try:
            result = await work
            if task in self._late:  # it kept the cancellation to itself, and went on
                task.uncancel()
                raise TimeoutError(f"no end after {seconds:g} s")
            return result
        except asyncio.CancelledError:
            if task in self._late and task.uncancel() == 0:
                raise TimeoutError(f"no end after {seconds:g} s") from None
            raise
        finally:
            del self._until[task]
            self._late.discard(task)

    def _look(self) -> None:
        now = monotonic()
        for task in [task for task, until in self._until.items() if until < now and task not in self._late]:
            self._late.add(task)
            task.cancel()
        self._looking = bool(self._until)
        if self._looking:
            self._loop.call_later(_EVERY, self._look)


_watches: dict[int, _Watch] = {}


async def within(seconds: float, work: Awaitable[T]) -> T:
    """Await something for at most that long; then it is cancelled and this raises `TimeoutError`."""
    if seconds < SHORT:
        return await in_time(seconds, work)
    loop = asyncio.get_running_loop()
    watch = _watches.get(id(loop))
    if watch is None or watch._loop is not loop:
        watch = _watches[id(loop)] = _Watch(loop)
    return await watch.within(seconds, work)
