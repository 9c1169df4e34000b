"""Which lines of many journals count, found in memory that does not grow with the number of lines.

A rollout counts once: its first completed or masked line, or else its last failed attempt. The ids of all lines are
written to temporary files, each id to the file that its hash selects. One file at a time is then read and settled, and
the state of each line goes to a file with one byte per line.
"""

from __future__ import annotations

import mmap
import struct
from collections import Counter
from contextlib import ExitStack
from enum import IntEnum
from hashlib import blake2b
from typing import IO, Any, Self

from ludus.store.scratch import Scratch, explains_full_disk

#: The bytes of journals per temporary file: ten thousand lines or so. Beyond 256 files, the files grow.
_BYTES_PER_FILE = 1 << 23
_MAX_FILES = 256

#: One line: the digest of its rollout's id, its number, its shard, its attempt, and whether it is a failed attempt.
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
        with explains_full_disk():
            count = min(1 + journal_bytes // _BYTES_PER_FILE, _MAX_FILES)
            self._files: list[IO[bytes]] = [self._scratch.file() for _ in range(count)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._stack.close()

    def __getitem__(self, line: int) -> int:
        """The state of a line, one of `LineState`."""
        return self._states[line]

    def add(self, shard: int, rollout_id: str, attempt: Any, *, failed: bool) -> None:
        """Add the next line."""
        key = blake2b(rollout_id.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        number = attempt % 2**64 if isinstance(attempt, int) else 0
        with explains_full_disk():
            file = self._files[int.from_bytes(key[:2], "little") % len(self._files)]
            file.write(_ENTRY.pack(key, self.lines, shard, number, failed))
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
                for file in self._files:
                    file.seek(0)
                    self._settle_file(file.read(), self._states)

    def _settle_file(self, entries: bytes, states: mmap.mmap) -> None:
        done: set[bytes] = set()
        failed_line: dict[bytes, int] = {}  # the last failed attempt of each rollout
        attempts: set[tuple[bytes, int]] = set()
        for key, line, shard, attempt, failed in _ENTRY.iter_unpack(entries):
            is_new = key not in done and key not in failed_line
            if (failed and (key, attempt) in attempts) or (not failed and key in done):
                states[line] = LineState.DUPLICATE
                self.duplicates += 1
                continue
            self.rollouts[shard] += is_new
            if key in failed_line:
                states[failed_line.pop(key)] = LineState.KEPT
            if not failed:
                done.add(key)
                continue
            attempts.add((key, attempt))
            if key in done:
                states[line] = LineState.KEPT
            else:
                failed_line[key] = line
