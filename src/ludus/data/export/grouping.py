"""The rollouts of each task, found in memory that does not grow with the file.

Repeats of a task may lie far apart. The first pass over the file writes an entry of about 80 bytes for each rollout
into temporary files: each entry into the file that the hash of its task selects. One file at a time is then read and
grouped, and its groups are written to a second row of files by where they begin, so that groups come out in the order
of the run. In memory is the content of one of up to 128 files at a time, and all entries of the largest task. An entry
takes about 500 bytes there. In a run that was collected repeat by repeat all tasks begin early, so the groups share a
few of the files: measured, 22 MB for 400,000 rollouts with eight repeats.

Tasks are told apart by Python's 64-bit hash, which nobody outside the process can predict. The chance that any two of a
million tasks share one is 3 in 100 million.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import groupby
from operator import itemgetter
from typing import IO, NamedTuple, Self

from ludus.data.recorded import Sample
from ludus.store.records import Place
from ludus.store.scratch import Scratch, explains_full_disk, full_disk

#: The bytes of rollouts per temporary file. Beyond 128 files, the files grow.
_BYTES_PER_FILE = 1 << 23
_MAX_FILES = 128

#: The hashes of the task and of the rollout, then the fields of a `IndexedRollout`.
_ENTRY = struct.Struct("<qqQQQ?qdQ???")
#: The number of the line with which the group begins, then the fields of a `IndexedRollout`.
_PLACED = struct.Struct("<QQQQ?qdQ???")
_START = struct.Struct("<Q")
_HASHES = 16


class IndexedRollout(NamedTuple):
    """One rollout of a group. `kept` says that no filter refuses it, `passed` that its reward is a pass.

    `length` is 0 unless somebody asked for lengths.
    """

    offset: int
    size: int
    number: int
    plain: bool
    repeat: int
    reward: float
    length: int
    kept: bool
    masked: bool
    passed: bool

    @property
    def place(self) -> Place:
        """Where its line lies."""
        return Place(self.offset, self.size, self.number, self.plain)


class GroupIndex:
    """The groups of a file. `add` every completed or masked rollout in order, then iterate over `groups` once.

    `duplicates` counts kept lines of a rollout that was there before: they are left out.
    """

    def __init__(self, file_bytes: int) -> None:
        self.duplicates = 0
        self._lines = 0  # the number of the last line
        self._scratch = Scratch("ludus-export-")
        count = min(1 + file_bytes // _BYTES_PER_FILE, _MAX_FILES)
        with explains_full_disk():
            self._by_task: list[IO[bytes]] = [self._scratch.file() for _ in range(count)]
            self._by_start: list[IO[bytes]] = [self._scratch.file() for _ in range(count)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._scratch.__exit__(None, None, None)

    def add(self, sample: Sample, place: Place, *, length: int, kept: bool, passed: bool) -> None:
        """Add the next rollout."""
        task, masked = hash((sample.environment, sample.task_id)), sample.outcome == "masked"
        offset, size, number, plain = place
        reward, repeat, self._lines = sample.scored, sample.repeat, number
        entry = _ENTRY.pack(
            *(task, hash(sample.rollout_id), offset, size, number, plain, repeat, reward, length, kept, masked, passed)
        )
        try:
            self._by_task[task % len(self._by_task)].write(entry)
        except OSError as error:
            raise full_disk(error) from error

    def groups(self) -> Iterator[list[IndexedRollout]]:
        """The members of each task, ordered by repeat; the tasks in the order in which they begin in the file."""
        for file in self._by_task:
            with explains_full_disk():
                file.seek(0)
                self._place(file.read())
                file.close()
        for file in self._by_start:
            with explains_full_disk():
                file.seek(0)
                entries = sorted(_PLACED.iter_unpack(file.read()), key=itemgetter(0, 5, 3))
                file.close()
            for _, found in groupby(entries, key=itemgetter(0)):
                yield [IndexedRollout._make(entry[1:]) for entry in found]

    def _place(self, entries: bytes) -> None:
        """Write each entry to the file for the place where its group begins."""
        starts: dict[int, int] = {}
        seen: set[tuple[int, int]] = set()
        files, lines = self._by_start, self._lines + 1
        for position, entry in zip(range(0, len(entries), _ENTRY.size), _ENTRY.iter_unpack(entries), strict=True):
            task, rollout, number, kept = entry[0], entry[1], entry[4], entry[9]
            if (task, rollout) in seen:
                self.duplicates += kept  # a line that a filter refused is counted already
                continue
            seen.add((task, rollout))
            start = starts.setdefault(task, number)
            member = entries[position + _HASHES : position + _ENTRY.size]
            files[start * len(files) // lines].write(_START.pack(start) + member)
