"""Fewer garbage collections while many objects are alive."""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator


class _GarbageCollection:
    """Python's thresholds are global: the first run of a process raises them, the last restores them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._before = (0, 0, 0)
        self._freezes = True

    def begin(self) -> None:
        with self._lock:
            self._users += 1
            if self._users == 1:
                self._before = gc.get_threshold()
                # Unfreezing would also unfreeze what the program froze. Counting walks over all of it: once is enough.
                self._freezes = self._freezes and gc.get_freeze_count() == 0
                if self._freezes:
                    gc.freeze()
                gc.set_threshold(50000, 20, 100)

    def end(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                gc.set_threshold(*self._before)
                if self._freezes:
                    gc.unfreeze()


_garbage_collection = _GarbageCollection()


@contextlib.contextmanager
def fewer_garbage_collections() -> Iterator[None]:
    """Let Python look for reference cycles less often.

    With thousands of rollouts in flight, hundreds of thousands of objects are alive. By default Python scans many of
    them after every few hundred allocations: at 8,192 in flight, half of the time (benchmarks/bench.py). Rollouts make
    few cycles.
    """
    _garbage_collection.begin()
    try:
        yield
    finally:
        _garbage_collection.end()
