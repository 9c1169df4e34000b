"""The rollouts that a worker has finished, on their way to the collection.

They are sent in batches: a frame for each rollout would cost more than many a rollout. Every frame says how many
rollouts the worker wants to have (`room`): those that it plays at once, those that wait for their group, and those that
it plays until new work arrives.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Any

import orjson

from ludus.collection.engines.frames import frame
from ludus.collection.engines.summaries import summary
from ludus.rollout import Job, Rollout

#: A batch is sent after this many seconds, rollouts or bytes.
BATCH_SECONDS = 0.005
BATCH_ROLLOUTS = 64
BATCH_BYTES = 256 << 10

#: Backpressure: while this many bytes are unsent, no more rollouts are started.
MAX_UNSENT_BYTES = 4 << 20

#: Seconds of work to request in advance, at most MAX_AHEAD rollouts. For slow rollouts that is nothing, so that the
#: last ones do not wait for a worker while another is idle.
AHEAD_SECONDS = 0.05
MAX_AHEAD = 1024


class TurnOutbox:
    """The turns' side of an outbox, as the rollouts of a worker use it."""

    def __init__(self, outbox: Outbox) -> None:
        self.add, self.settle, self.flush = outbox.add_turn, outbox.settle_turn, outbox.flush


class Outbox:
    """Takes the finished rollouts of a worker, and the turns of those in flight. `plays_at_once` is the number of
    rollouts that the worker may play now, `ahead` the seconds of work to request in advance. `news` travels with the
    results, so that it is not lost if the worker dies after them."""

    def __init__(
        self,
        writer: asyncio.StreamWriter,
        plays_at_once: Callable[[], int],
        ahead: float,
        news: Callable[[], dict[str, Any]],
    ) -> None:
        self.lease_of: dict[str, int] = {}  #: the numbers of the leases by rollout id
        self._writer, self._plays_at_once, self._ahead, self._news = writer, plays_at_once, ahead, news
        self._heads: list[Any] = []
        self._lines: list[bytes] = []
        self._bytes = 0
        self._turns: list[Any] = []
        self._turn_lines: list[bytes] = []
        self._turns_added = self._turns_saved = 0
        self._unsaved: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._room_told = 0
        self._pace = 0.0  # rollouts a second
        self._sent_at = perf_counter()

    def add(self, rollout: Rollout) -> Awaitable[None] | None:
        """Take a finished rollout. Returns an awaitable if too much is unsent."""
        self._take(rollout)
        if len(self._heads) >= BATCH_ROLLOUTS or self._bytes >= BATCH_BYTES:
            self.flush()
            if self._writer.transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
                return self._writer.drain()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(BATCH_SECONDS, self.flush)
        return None

    async def add_group(self, rollouts: list[Rollout]) -> None:
        """Take rollouts that were judged together, and send them in one frame: they are recorded together."""
        for rollout in rollouts:
            self._take(rollout)
        self.flush()
        if self._writer.transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
            await self._writer.drain()

    def add_turn(self, job: Job, line: bytes, turns: int) -> int:
        """Take turns of a rollout in flight. Returns their number."""
        self._turns.append([self.lease_of[job.rollout_id], job.repeat, len(line), turns])
        self._turn_lines.append(line)
        self._turns_added += 1
        return self._turns_added

    def settle_turn(self, number: int) -> Awaitable[None] | None:
        """An awaitable that ends when the collection has written these turns; None if it has already."""
        if number <= self._turns_saved:
            return None
        saved: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._unsaved.append((number, saved))
        return saved

    def turns_saved(self, count: int) -> None:
        """The collection has written `count` more turns."""
        self._turns_saved += count
        waiting, self._unsaved = self._unsaved, deque()
        for number, saved in waiting:
            if number > self._turns_saved:
                self._unsaved.append((number, saved))
            elif not saved.done():
                saved.set_result(None)

    def read_recorded(self, recorded: bytes) -> dict[str, Any]:
        """The row of a rollout that an earlier run recorded: its line came with the lease."""
        row: dict[str, Any] = orjson.loads(recorded)
        return row

    def flush(self) -> None:
        """Send the batch with the current `room`."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now = perf_counter()
        if self._heads:
            pace = len(self._heads) / max(now - self._sent_at, 1e-6)
            self._pace += 0.2 * (pace - self._pace)
            self._sent_at = now
        room = self.room()
        if self._turns:
            self._writer.write(frame({"turns": self._turns}, self._turn_lines))
            self._turns, self._turn_lines = [], []
        if self._heads or room != self._room_told:
            self._writer.write(frame({"room": room, "results": self._heads, **self._news()}, self._lines))
            self._heads, self._lines, self._bytes, self._room_told = [], [], 0, room

    def _take(self, rollout: Rollout) -> None:
        line, lease = rollout.encode(), self.lease_of.pop(rollout.rollout_id)
        self._heads.append([lease, rollout.job.repeat, len(line), summary(rollout)])
        self._lines.append(line)
        self._bytes += len(line)

    def room(self) -> int:
        """How many rollouts the worker wants to have, including those in flight."""
        return self._plays_at_once() + min(int(self._pace * self._ahead), MAX_AHEAD)
