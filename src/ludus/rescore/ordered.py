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
from ludus.runtime.deadline import Deadline
from ludus.runtime.ordered import InOrder
from ludus.store.lines import Block, StoredLines

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


#: What is passed on: the result of one line, or of a block that another process scored.
Scored = ScoredLine | ScoredBlock


class OrderedScoring:
    """Scores the lines of a source and passes the results to `sink` in the order of the lines."""

    def __init__(self, source: StoredLines, scorers: Scorers, sink: Callable[[Scored], None]) -> None:
        self._source, self._scorers = source, scorers
        self._results = InOrder(sink, lambda result: len(result.output), MAX_PENDING_BYTES)
        self.add_result = self._results.add
        self._yielding: deque[asyncio.Future[None]] = deque()
        self._yield_at = 0.0

    @property
    def in_flight(self) -> int:
        """How many lines and blocks were taken and not yet passed to `sink`."""
        return self._results.in_flight

    async def run(self, workers: int) -> None:
        """Score every line with at most `workers` concurrent workers."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._work(group, workers - 1))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def take_block(self, size: int) -> tuple[int, Block] | None:
        """Take about `size` bytes of lines for another process. Returns their index and block; None at the end."""
        await self._results.room()
        block = self._source.take_block(size)
        return (self._results.take(), block) if block is not None else None

    async def _work(self, group: asyncio.TaskGroup, more: int) -> None:
        """Score line after line. Each worker starts the next one, which first runs when this one waits."""
        lines, score_line, results = iter(self._source), self._scorers.score_line, self._results
        await self._yield_to_loop()
        if more:
            group.create_task(self._work(group, more - 1))
        deadline = Deadline(whole=math.inf, shortest=60.0)  # one timer for the verdicts of all rows
        deadline.start()
        try:
            for number, line, counts in lines:
                index = results.take()
                duplicate = ScoredLine(number, line, duplicate=True) if not counts else None
                results.add(index, duplicate or await score_line(number, line, deadline))
                if perf_counter() > self._yield_at:
                    await self._yield_to_loop()
                if results.is_full:
                    await results.room()
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


async def score_lines(source: StoredLines, scorers: Scorers, workers: int) -> ScoredBlock:
    """Score all lines of a source, usually a block, and collect the results in memory."""
    lines: list[bytes] = []
    changes = Changes()

    def add(result: Scored) -> None:
        assert isinstance(result, ScoredLine)
        lines.append(result.output)
        changes.add(result)

    await OrderedScoring(source, scorers, add).run(workers)
    return ScoredBlock(b"".join(lines), changes)
