"""The concurrency limit of `--concurrency auto`: additive increase, multiplicative decrease.

The limit grows by 1 after `limit` answers. It shrinks to 70 % when the server is overloaded (429, 503, a timeout) or
when answers take three times as long as the baseline. Servers that report their own load (`fleet_load.py`) decide in
place of the latency: the limit grows fast while they have room, shrinks by what waits there, and to 70 % if they
preempt. Rollouts in flight go on when the limit shrinks: only new ones wait. `Adaptive` computes the limit without a
clock or an event loop; `Gate` makes workers wait until they are below the limit.
"""

from __future__ import annotations

import asyncio
from collections import deque
from time import perf_counter

from ludus.collection.fleet_load import Fleet, FleetLoad
from ludus.model import Model

DECREASE = 0.7
SLOW_FACTOR = 3.0
BASELINE_WEIGHT = 0.01
RECENT_WEIGHT = 0.1

#: How the limit grows with a round of answers while servers have room: until as many rollouts have ended as may be in
#: flight, and from then on. The prompts of a rollout get longer with its turns, so the first ones say too little.
EARLY_GROWTH, FIRST_GROWTH = 1.25, 2.0

#: How it grows once the servers were full: when as many rollouts have ended as may be in flight.
LATER_GROWTH = 1.1

#: The share of the KV cache to fill, and early, when rollouts will still grow.
FULL_CACHE, EARLY_CACHE = 0.9, 0.5

#: Seconds for which a report of the servers counts.
REPORT_COUNTS = 10.0


class Adaptive:
    """Computes the limit from the results of calls. The caller passes the time."""

    def __init__(self, start: int = 8, minimum: int = 1, maximum: int = 1024) -> None:
        self._limit = float(max(minimum, min(start, maximum)))
        self._minimum, self._maximum = minimum, maximum
        self._baseline: float | None = None
        self._recent: float | None = None
        self._no_growth_until = self._no_cut_until = 0.0
        self._reported_until = 0.0
        self._was_full = False
        self._turned_over = False  # as many rollouts have ended as may be in flight
        self._ended = 0  # rollouts since the last change
        self._fullest = 0.0  # the cache since the last change

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
        if now < self._reported_until:
            return
        if self._recent > SLOW_FACTOR * self._baseline:
            self.pressed(now)
        elif in_flight >= self.limit and now >= self._no_growth_until:
            self._limit = min(self._maximum, self._limit + 1 / self._limit)

    def pressed(self, now: float) -> None:
        """The server is overloaded. Ignored for one latency after a decrease: those calls were sent before it."""
        if now >= self._no_cut_until:
            self._cut(self._limit * DECREASE, now)

    def reported(self, load: FleetLoad, in_flight: int, now: float) -> None:
        """The servers reported their load. A limit that is not in effect yet is not lowered again."""
        self._reported_until = now + REPORT_COUNTS
        self._fullest = max(self._fullest, load.cache or 0.0)
        if load.preempted or load.surplus:
            if now >= self._no_cut_until and in_flight <= self.limit:
                ours = min(1.0, in_flight / max(1.0, load.running + load.waiting))
                least = self._limit * DECREASE
                self._cut(least if load.preempted else max(least, self._limit - ours * load.surplus), now)
        elif now >= self._no_growth_until and in_flight >= self.limit and self._recent is not None:
            self._grow(now)

    def _grow(self, now: float) -> None:
        """Grow as far as the cache allows by its fullest moment since the last change."""
        if self._was_full and self._ended < self._limit:
            return
        fill, growth = (FULL_CACHE, FIRST_GROWTH) if self._turned_over else (EARLY_CACHE, EARLY_GROWTH)
        if self._was_full:
            growth = LATER_GROWTH
        if self._fullest:
            growth = min(growth, fill / self._fullest)
        if growth > 1:
            self._change(max(self._limit + 1, self._limit * growth), now)

    def _cut(self, limit: float, now: float) -> None:
        self._was_full = True
        self._change(limit, now)
        self._no_cut_until = self._no_growth_until

    def ended(self) -> None:
        """A rollout ended."""
        self._ended += 1
        self._turned_over |= self._ended >= self._limit

    def _change(self, limit: float, now: float) -> None:
        self._limit = max(self._minimum, min(self._maximum, limit))
        self._ended, self._fullest = 0, 0.0
        self._no_growth_until = now + (self._recent or 1.0)


class Gate:
    """Admits workers up to the limit, and reports the results of calls to `Adaptive`. Pair `enter` with `leave`."""

    def __init__(self, adaptive: Adaptive) -> None:
        self.adaptive = adaptive
        self.inside = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def follow(self, model: Model) -> None:
        """Ask the servers of a model for their load, again and again, until cancelled."""
        fleet = Fleet()
        while True:
            began = perf_counter()
            load = fleet.take(await model.server_loads())
            now = perf_counter()
            if load is not None:
                self.adaptive.reported(load, self.inside, now)
                self.admit()
            await asyncio.sleep(fleet.pause(now - began))

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
        self.adaptive.ended()
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
