"""Which lines of many journals count, found in memory that does not grow with the number of lines.

The rule is that of `ludus.store.counting`. The names of all lines are written to a temporary file, in parts that their
hashes select. One part at a time is then read and settled, and the state of each line goes to a file with one byte per
line.
"""

from __future__ import annotations

import mmap
import struct
from collections import Counter
from contextlib import ExitStack
from enum import IntEnum
from hashlib import blake2b
from typing import Self

from ludus.record import Row
from ludus.store.counting import CountedAttempts, attempt_of, name_of_row
from ludus.store.partitions import Partitions
from ludus.store.scratch import Scratch, explains_full_disk

#: The bytes of journals per part: ten thousand lines or so. Beyond 256 parts, the parts grow.
_BYTES_PER_PART = 1 << 23
_MAX_PARTS = 256

#: One line: the digest of its rollout's name, its number, its shard, its attempt, and whether it is a failed attempt.
_ENTRY = struct.Struct("<16sQIQ?")
_BLOCK = bytes(1 << 16)


class LineState(IntEnum):
    """What becomes of a line."""

    COUNTS = 0  #: kept, and its rollout is counted with this line
    KEPT = 1  #: kept: a failed attempt at a rollout that another line counts
    DUPLICATE = 2  #: left out


class Ledger:
    """The lines of journals. `add` all of them in order, `settle` once, then look up a line by its number from 0.

    `rollouts` counts the different rollouts of each shard, `duplicates` the lines that are left out.
    """

    def __init__(self, journal_bytes: int) -> None:
        self.lines = self.duplicates = 0
        self.rollouts: Counter[int] = Counter()
        self._stack = ExitStack()
        self._scratch = self._stack.enter_context(Scratch("ludus-merge-"))
        self._states: mmap.mmap | bytes = b""
        self._parts = min(1 + journal_bytes // _BYTES_PER_PART, _MAX_PARTS)
        self._partitions = Partitions(self._scratch, self._parts)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def __getitem__(self, line: int) -> int:
        """The state of a line, one of `LineState`."""
        return self._states[line]

    def add(self, shard: int, row: Row, *, failed: bool) -> None:
        """Add the next line. `failed` says that it stands in failures.jsonl."""
        key = blake2b(name_of_row(row) or b"", digest_size=16).digest()
        entry = _ENTRY.pack(key, self.lines, shard, attempt_of(row) % 2**64, failed)
        self._partitions.add(int.from_bytes(key[:2], "little") % self._parts, entry)
        self.lines += 1

    def settle(self) -> None:
        """Decide the state of every line."""
        with explains_full_disk():
            states = self._scratch.file()
            for start in range(0, self.lines, len(_BLOCK)):  # really written: a full disk is an error here and no crash
                states.write(_BLOCK[: min(len(_BLOCK), self.lines - start)])
            states.flush()
            if self.lines:
                self._states = self._stack.enter_context(mmap.mmap(states.fileno(), self.lines))
                for part in range(self._parts):
                    self._settle(self._partitions.take(part), self._states)

    def _settle(self, entries: bytes, states: mmap.mmap) -> None:
        ended: set[bytes] = set()
        for key, line, shard, _, failed in _ENTRY.iter_unpack(entries):
            if not failed and key in ended:
                states[line] = LineState.DUPLICATE
            elif not failed:
                ended.add(key)
                self.rollouts[shard] += 1
        attempts, shards = CountedAttempts[bytes](ended), dict[int, int]()
        for key, line, shard, attempt, failed in _ENTRY.iter_unpack(entries):
            if failed:
                states[line] = LineState.KEPT if attempts.add(key, attempt, line) else LineState.DUPLICATE
                shards[line] = shard
        for line in attempts.last.values():
            states[line] = LineState.COUNTS
            self.rollouts[shards[line]] += 1
        self.duplicates += sum(states[line] == LineState.DUPLICATE for _, line, _, _, _ in _ENTRY.iter_unpack(entries))
