"""Lines answered by many workers at once, and handed on in the order in which they came.

A verifier that answers at once is awaited where it stands, so that no task is made for a row. What is answered out of
turn waits, encoded, for its turn; when much waits, no more lines are taken.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from time import perf_counter

from ludus.rescore.changes import Changes
from ludus.rescore.scorer import Deadlines
from ludus.rescore.scoring import Answer, Scorers
from ludus.store.lines import Block, Source

#: How many bytes may wait for their turn.
HELD = 8 << 20

#: Seconds after which a worker that never waits lets the others run: as long as another process may wait for a block.
BREATH = 0.0005


class Part:
    """The answers to several lines in a row, as one."""

    __slots__ = ("changes", "line")

    def __init__(self, line: bytes, changes: Changes) -> None:
        self.line = line
        self.changes = changes


class Lineup:
    """Takes lines, answers them, and passes each answer to `sink` when it is its turn."""

    def __init__(self, source: Source, scorers: Scorers, sink: Callable[[Answer | Part], None]) -> None:
        self._source, self._scorers, self._sink = source, scorers, sink
        self._taken = self._passed_on = 0
        self._waiting: dict[int, Answer | Part] = {}
        self._held = 0
        self._moved = asyncio.Event()
        self._turns: deque[asyncio.Future[None]] = deque()
        self._until = 0.0

    @property
    def in_flight(self) -> int:
        """How many lines, or blocks of lines, are being answered or wait for their turn."""
        return self._taken - self._passed_on

    async def run(self, workers: int) -> None:
        """Answer every line, `workers` of them at once at most."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._work(group, workers - 1))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def take(self, size: int) -> tuple[int, Block] | None:
        """About `size` bytes of lines for somebody else to answer, and their place; None when nothing is left."""
        if self._held > HELD:
            await self._room()
        block = self._source.block(size)
        if block is None:
            return None
        self._taken += 1
        return self._taken - 1, block

    def deliver(self, place: int, answer: Answer | Part) -> None:
        """Pass on an answer, and those that waited for it."""
        if place != self._passed_on:
            self._waiting[place] = answer
            self._held += len(answer.line)
            return
        self._sink(answer)
        self._passed_on += 1
        if self._waiting:
            self._pass_on()

    def _pass_on(self) -> None:
        while (answer := self._waiting.pop(self._passed_on, None)) is not None:
            self._held -= len(answer.line)
            self._sink(answer)
            self._passed_on += 1
        self._moved.set()

    async def _work(self, group: asyncio.TaskGroup, more: int) -> None:
        """Answer line after line. The next worker is started by this one, and first runs when this one has to wait."""
        lines, answer, deliver = self._source.lines, self._scorers.answer, self.deliver
        await self._turn()
        if more:
            group.create_task(self._work(group, more - 1))
        deadlines: Deadlines = {}
        while True:
            if self._held > HELD:
                await self._room()
            taken = next(lines, None)
            if taken is None:
                return
            number, line = taken
            place = self._taken
            self._taken += 1
            deliver(place, await answer(number, line, deadlines))
            if perf_counter() > self._until:
                await self._turn()

    async def _turn(self) -> None:
        """Wait for a turn to work. The loop looks at the world after each, and wakes one worker, however many wait."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._turns.append(turn)
        if len(self._turns) == 1:
            asyncio.get_running_loop().call_soon(self._next_turn)
        await turn

    def _next_turn(self) -> None:
        self._until = perf_counter() + BREATH
        turn = self._turns.popleft()
        if not turn.done():
            turn.set_result(None)
        if self._turns:
            asyncio.get_running_loop().call_soon(self._next_turn)

    async def _room(self) -> None:
        while self._held > HELD:
            self._moved.clear()
            await self._moved.wait()


async def answer_all(source: Source, scorers: Scorers, workers: int) -> Part:
    """Answer lines for somebody else."""
    answered: list[bytes] = []
    changes = Changes()

    def keep(answer: Answer | Part) -> None:
        assert isinstance(answer, Answer)
        answered.append(answer.line)
        changes.add(answer)

    await Lineup(source, scorers, keep).run(workers)
    return Part(b"".join(answered), changes)
