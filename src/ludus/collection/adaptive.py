"""The concurrency limit of `--concurrency auto`: additive increase, multiplicative decrease.

The limit grows by 1 after `limit` answers. It shrinks to 70 % when the server is overloaded (429, 503, a timeout) or
when answers take three times as long as the baseline. `Adaptive` computes the limit without a clock or an event loop;
`Gate` makes workers wait until they are below the limit.
"""

from __future__ import annotations

import asyncio
from collections import deque
from time import perf_counter

DECREASE = 0.7
SLOW_FACTOR = 3.0
BASELINE_WEIGHT = 0.01
RECENT_WEIGHT = 0.1


class Adaptive:
    """Computes the limit from the results of calls. The caller passes the time."""

    def __init__(self, start: int = 8, minimum: int = 1, maximum: int = 1024) -> None:
        self._limit = float(max(minimum, min(start, maximum)))
        self._minimum, self._maximum = minimum, maximum
        self._baseline: float | None = None
        self._recent: float | None = None
        self._no_change_until = 0.0

    @property
    def limit(self) -> int:
        """The largest allowed number of rollouts in flight."""
        return int(self._limit)

    def raise_maximum(self, maximum: int) -> None:
        """Let the limit grow further."""
        self._maximum = max(self._maximum, maximum)

    def answered(self, seconds: float, in_flight: int, now: float) -> None:
        """A call was answered. The limit grows only if it is reached."""
        self._recent = _moving_average(self._recent, seconds, RECENT_WEIGHT)
        self._baseline = min(self._recent, _moving_average(self._baseline, seconds, BASELINE_WEIGHT))
        if self._recent > SLOW_FACTOR * self._baseline:
            self.pressed(now)
        elif in_flight >= self.limit and now >= self._no_change_until:
            self._limit = min(self._maximum, self._limit + 1 / self._limit)

    def pressed(self, now: float) -> None:
        """The server is overloaded. Ignored for one latency after a decrease: those calls were sent before it."""
        if now < self._no_change_until:
            return
        self._limit = max(self._minimum, self._limit * DECREASE)
        self._no_change_until = now + (self._recent or 1.0)


class Gate:
    """Admits workers up to the limit, and reports the results of calls to `Adaptive`. Pair `enter` with `leave`."""

    def __init__(self, adaptive: Adaptive) -> None:
        self.adaptive = adaptive
        self.inside = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def enter(self) -> None:
        """Wait until fewer workers than the limit are inside."""
        if self.inside < self.adaptive.limit:
            self.inside += 1
            return
        admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(admitted)
        try:
            await admitted
        except asyncio.CancelledError:
            if admitted.done() and not admitted.cancelled():
                self.leave()
            raise

    def raise_maximum(self, maximum: int) -> None:
        """Let the limit grow further, as answers come in."""
        self.adaptive.raise_maximum(maximum)

    def answered(self, seconds: float) -> None:
        """A call was answered."""
        self.adaptive.answered(seconds, self.inside, perf_counter())
        self.admit()

    def pressed(self) -> None:
        """The server is overloaded."""
        self.adaptive.pressed(perf_counter())

    def leave(self) -> None:
        """Free a place for the next worker."""
        self.inside -= 1
        self.admit()

    def admit(self) -> None:
        """Admit waiting workers up to the limit."""
        while self._waiting and self.inside < self.adaptive.limit:
            admitted = self._waiting.popleft()
            if not admitted.done():
                self.inside += 1
                admitted.set_result(None)


def _moving_average(old: float | None, new: float, weight: float) -> float:
    return new if old is None else old + weight * (new - old)
