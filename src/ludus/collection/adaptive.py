"""How many rollouts at once: found out by trying, for `--concurrency auto`.

Additive increase, multiplicative decrease: one more for every full round of answers, three tenths fewer when the
server says that it is too much (429, 503, a timeout) or when answers take several times as long as they did.
`Adaptive` is a pure state machine; `Gate` makes workers wait for it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from time import perf_counter

DECREASE = 0.7
SLOW = 3.0
BASELINE_MEMORY = 0.01
RECENT_MEMORY = 0.1


class Adaptive:
    """The limit, and what moves it. Time is an argument."""

    def __init__(self, start: int = 8, least: int = 1, most: int = 1024) -> None:
        self._limit = float(max(least, min(start, most)))
        self._least, self._most = least, most
        self._usual: float | None = None
        self._recent: float | None = None
        self._quiet_until = 0.0

    @property
    def limit(self) -> int:
        """How many may be in flight now."""
        return int(self._limit)

    def answered(self, seconds: float, in_flight: int, now: float) -> None:
        """A call was answered. The limit grows only while it is what holds things back."""
        self._recent = _blend(self._recent, seconds, RECENT_MEMORY)
        self._usual = min(self._recent, _blend(self._usual, seconds, BASELINE_MEMORY))
        if self._recent > SLOW * self._usual:
            self.pressed(now)
        elif in_flight >= self.limit and now >= self._quiet_until:
            self._limit = min(self._most, self._limit + 1 / self._limit)

    def pressed(self, now: float) -> None:
        """The server says that it is too much. What was sent before the last decrease does not count again."""
        if now < self._quiet_until:
            return
        self._limit = max(self._least, self._limit * DECREASE)
        self._quiet_until = now + (self._recent or 1.0)


class Gate:
    """Lets as many through as the limit says, and tells the limit how calls go. One `enter` for each `leave`."""

    def __init__(self, adaptive: Adaptive) -> None:
        self.adaptive = adaptive
        self.inside = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def enter(self) -> None:
        """Wait until there is room."""
        if self.inside < self.adaptive.limit:
            self.inside += 1
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self.leave()
            raise

    def answered(self, seconds: float) -> None:
        """A call was answered."""
        self.adaptive.answered(seconds, self.inside, perf_counter())
        self.let_in()

    def pressed(self) -> None:
        """The server says that it is too much."""
        self.adaptive.pressed(perf_counter())

    def leave(self) -> None:
        """Make room."""
        self.inside -= 1
        self.let_in()

    def let_in(self) -> None:
        """Let in whoever has room by now."""
        while self._waiting and self.inside < self.adaptive.limit:
            place = self._waiting.popleft()
            if not place.done():
                self.inside += 1
                place.set_result(None)


def _blend(old: float | None, new: float, memory: float) -> float:
    return new if old is None else old + memory * (new - old)
