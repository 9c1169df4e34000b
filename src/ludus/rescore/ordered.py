"""Scoring lines with many concurrent workers, and passing the results on in the order of the lines.

No asyncio task is created per row: each worker is one task that scores line after line. A result that is ready before
an earlier line's waits, encoded, in memory. When `MAX_PENDING_BYTES` wait, workers take no more lines.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from time import perf_counter

from ludus.rescore.changes import Changes
from ludus.rescore.scoring import ScoredLine, Scorers
from ludus.runtime.boundary import Deadline
from ludus.store.lines import Block, Source

#: How many bytes of results may wait for an earlier line.
MAX_PENDING_BYTES = 8 << 20

#: Seconds after which a worker that never waits yields to the event loop, which serves the helper processes.
YIELD_SECONDS = 0.0005


class ScoredBlock:
    """The result for a block of lines. `output` is the lines to write."""

    __slots__ = ("changes", "output")

    def __init__(self, output: bytes, changes: Changes) -> None:
        self.output = output
        self.changes = changes


class OrderedScoring:
    """Scores the lines of a source and passes the results to `sink` in the order of the lines."""

    def __init__(self, source: Source, scorers: Scorers, sink: Callable[[ScoredLine | ScoredBlock], None]) -> None:
        self._source, self._scorers, self._sink = source, scorers, sink
        self._taken = self._next = 0  # how many lines and blocks were taken; the index of the next result for `sink`
        self._pending: dict[int, ScoredLine | ScoredBlock] = {}
        self._pending_bytes = 0
        self._progressed = asyncio.Event()
        self._yielding: deque[asyncio.Future[None]] = deque()
        self._yield_at = 0.0

    @property
    def in_flight(self) -> int:
        """How many lines and blocks were taken and not yet passed to `sink`."""
        return self._taken - self._next

    async def run(self, workers: int) -> None:
        """Score every line with at most `workers` concurrent workers."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._work(group, workers - 1))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def take_block(self, size: int) -> tuple[int, Block] | None:
        """Take about `size` bytes of lines for another process. Returns their index and block; None at the end."""
        if self._pending_bytes > MAX_PENDING_BYTES:
            await self._wait_for_room()
        block = self._source.take_block(size)
        if block is None:
            return None
        self._taken += 1
        return self._taken - 1, block

    def add_result(self, index: int, result: ScoredLine | ScoredBlock) -> None:
        """Pass a result to `sink`, followed by the pending results after it; keep it if an earlier one is missing."""
        if index != self._next:
            self._pending[index] = result
            self._pending_bytes += len(result.output)
            return
        self._sink(result)
        self._next += 1
        if self._pending:
            self._pass_on_pending()

    def _pass_on_pending(self) -> None:
        while (result := self._pending.pop(self._next, None)) is not None:
            self._pending_bytes -= len(result.output)
            self._sink(result)
            self._next += 1
        self._progressed.set()

    async def _work(self, group: asyncio.TaskGroup, more: int) -> None:
        """Score line after line. Each worker starts the next one, which first runs when this one waits."""
        lines, score_line, add_result = self._source.lines, self._scorers.score_line, self.add_result
        await self._yield_to_loop()
        if more:
            group.create_task(self._work(group, more - 1))
        deadline = Deadline(whole=math.inf, shortest=60.0)  # one timer for the verdicts of all rows
        deadline.start()
        try:
            while (taken := next(lines, None)) is not None:
                number, line = taken
                index = self._taken
                self._taken += 1
                add_result(index, await score_line(number, line, deadline))
                if perf_counter() > self._yield_at:
                    await self._yield_to_loop()
                if self._pending_bytes > MAX_PENDING_BYTES:
                    await self._wait_for_room()
        finally:
            deadline.leave(last=True)

    async def _yield_to_loop(self) -> None:
        """Let the event loop handle I/O. It resumes one yielding worker per iteration, in order."""
        resumed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._yielding.append(resumed)
        if len(self._yielding) == 1:
            asyncio.get_running_loop().call_soon(self._resume_one)
        await resumed

    def _resume_one(self) -> None:
        self._yield_at = perf_counter() + YIELD_SECONDS
        resumed = self._yielding.popleft()
        if not resumed.done():
            resumed.set_result(None)
        if self._yielding:
            asyncio.get_running_loop().call_soon(self._resume_one)

    async def _wait_for_room(self) -> None:
        while self._pending_bytes > MAX_PENDING_BYTES:
            self._progressed.clear()
            await self._progressed.wait()


async def score_lines(source: Source, scorers: Scorers, workers: int) -> ScoredBlock:
    """Score all lines of a source, usually a block, and collect the results in memory."""
    lines: list[bytes] = []
    changes = Changes()

    def add(result: ScoredLine | ScoredBlock) -> None:
        assert isinstance(result, ScoredLine)
        lines.append(result.output)
        changes.add(result)

    await OrderedScoring(source, scorers, add).run(workers)
    return ScoredBlock(b"".join(lines), changes)
