"""Results that are ready in any order, passed on in the order of the work: for work in helper processes.

A result that is ready before an earlier one waits in memory. When more than `most` bytes wait, `room` holds back those
who would take more work. `ludus verify` and `ludus data export` use it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

Result = TypeVar("Result")


class InOrder(Generic[Result]):
    """Passes results to `sink`. `size` says how many bytes a result has.

    index = in_order.take()
    in_order.add(index, await made(block))
    """

    def __init__(self, sink: Callable[[Result], None], size: Callable[[Result], int], most: int) -> None:
        self._sink, self._size, self._most = sink, size, most
        self._taken = self._next = 0  # how many pieces of work were taken; the index of the next result for `sink`
        self._waiting: dict[int, Result] = {}
        self._bytes = 0
        self._progressed = asyncio.Event()

    @property
    def in_flight(self) -> int:
        """How many pieces of work were taken whose results were not passed on yet."""
        return self._taken - self._next

    @property
    def is_full(self) -> bool:
        """Whether too many bytes wait."""
        return self._bytes > self._most

    def take(self) -> int:
        """The index of the next piece of work."""
        self._taken += 1
        return self._taken - 1

    def add(self, index: int, result: Result) -> None:
        """Pass a result to `sink`, followed by those that waited for it; keep it if an earlier one is missing."""
        if index != self._next:
            self._waiting[index] = result
            self._bytes += self._size(result)
            return
        self._sink(result)
        self._next += 1
        if not self._waiting:
            return
        while (waited := self._waiting.pop(self._next, None)) is not None:
            self._bytes -= self._size(waited)
            self._sink(waited)
            self._next += 1
        self._progressed.set()

    async def room(self) -> None:
        """Wait until fewer bytes wait."""
        while self.is_full:
            self._progressed.clear()
            await self._progressed.wait()
