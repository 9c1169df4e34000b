"""The gold queries that were asked for last. Each is tried once, however many rollouts of its group ask at once."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from ludus.environments.text_to_sql.execution import TriedGold
from ludus.runtime.deadline import queueing

#: A gold query, its dialect and its context.
Key = tuple[str, str, str]

#: How many bytes of gold queries are kept with their states: about 15 kB each, more where the row brings much data.
MOST_BYTES = 64 << 20


class TriedGolds:
    """Remembers what came of trials. A trial that fails is made again for the next rollout that asks."""

    def __init__(self, most: int = MOST_BYTES) -> None:
        self._most, self._bytes = most, 0
        self._running: dict[Key, asyncio.Task[TriedGold]] = {}
        self._known: OrderedDict[Key, TriedGold] = OrderedDict()

    async def get(self, key: Key, trial: Callable[[], Coroutine[Any, Any, TriedGold]]) -> TriedGold:
        """What is known of a gold query; `trial` finds out."""
        if (gold := self._known.get(key)) is not None:
            self._known.move_to_end(key)
            return gold
        if key not in self._running:
            self._running[key] = asyncio.create_task(trial())
            self._running[key].add_done_callback(partial(self._finished, key))
        with queueing():  # the trial may wait for a process in the name of another rollout
            return await asyncio.shield(self._running[key])

    def _finished(self, key: Key, trial: asyncio.Task[TriedGold]) -> None:
        del self._running[key]
        if trial.cancelled() or trial.exception() is not None:
            return
        self._known[key] = trial.result()
        self._bytes += _size(key, trial.result())
        while self._bytes > self._most:
            self._bytes -= _size(*self._known.popitem(last=False))


def _size(key: Key, gold: TriedGold) -> int:
    return sum(map(len, key)) + len(gold.reason) + len(gold.packed)
