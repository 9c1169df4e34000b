"""The rollouts of each task with the same verifier, found in memory that does not grow with the file.

Repeats of a task may lie far apart. The first pass over the file writes an entry of about 65 bytes for each rollout to
a temporary file, sorted into parts by the hash of its task. One part at a time is then read and grouped, and each group
is written to a second temporary file, sorted into parts by where the group begins, so that groups come out in the order
of the run. A sample of the groups says where these parts must begin to be of equal size. In memory are the entries of
one part, a block of each part, and all entries of the largest task, which take 500 bytes each.

Tasks are told apart by Python's 64-bit hash, which nobody outside the process can predict. The chance that any two of a
million tasks share one is 3 in 100 million.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterator
from operator import itemgetter
from typing import NamedTuple, Self

from ludus.store.partitions import Partitions
from ludus.store.scratch import Scratch
from ludus_data.export.records import Place
from ludus_data.recorded import Sample

#: The bytes of rollouts per part. Beyond 1,024 parts, the parts grow.
_BYTES_PER_PART = 1 << 21
_MAX_PARTS = 1024
#: The groups whose beginnings say where the parts of the second file begin.
_SAMPLE = 256

#: The hash of the task, then the fields of an `IndexedRollout`.
_MEMBER_FIELDS = "qQ?QQ?dQ??"
_ENTRY = struct.Struct("<q" + _MEMBER_FIELDS)
_MEMBER = struct.Struct("<" + _MEMBER_FIELDS)
_HASH = _ENTRY.size - _MEMBER.size
#: The fields of an entry that grouping needs: the hash, `repeat` and `number`.
_KEYS = struct.Struct(f"<qqQ{_ENTRY.size - struct.calcsize('<qqQ')}x")
#: What stands before the members of a group: the number of the line with which it begins, and its bytes.
_GROUP = struct.Struct("<QQ")


class IndexedRollout(NamedTuple):
    """One rollout of a group. `kept` says that no filter refuses it, `passed` that its reward is a pass.

    `length` is 0 unless somebody asked for lengths.
    """

    repeat: int
    number: int
    kept: bool
    offset: int
    size: int
    plain: bool
    reward: float
    length: int
    masked: bool
    passed: bool

    @property
    def place(self) -> Place:
        """Where its line lies."""
        return Place(self.offset, self.size, self.number, self.plain)


#: What an index is told of a rollout: environment, task id, verifier, repeat, reward, and whether it is masked.
#: A plain tuple, because processes send it to each other at a tenth of the cost of a tuple with names.
Member = tuple[str, str, str, int, float, bool]


def member_of(sample: Sample) -> Member:
    """A rollout that has a reward."""
    masked = sample.outcome == "masked"
    return sample.environment, sample.task_id, sample.verifier, sample.repeat, sample.scored, masked


class GroupIndex:
    """The groups of a file. `add` every completed or masked rollout in order, then iterate over `groups` once."""

    def __init__(self, file_bytes: int) -> None:
        self._scratch = Scratch("ludus-export-")
        self._parts = min(1 + file_bytes // _BYTES_PER_PART, _MAX_PARTS)
        self._by_task = Partitions(self._scratch, self._parts)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._scratch.__exit__(None, None, None)

    def add(self, member: Member, place: tuple[int, int, int, bool], *, length: int, kept: bool, passed: bool) -> None:
        """Add the next rollout. `place` has the values of a `Place`."""
        environment, task_id, verifier, repeat, reward, masked = member
        task = hash((environment, task_id, verifier))
        offset, size, number, plain = place
        entry = _ENTRY.pack(task, repeat, number, kept, offset, size, plain, reward, length, masked, passed)
        self._by_task.add(task % self._parts, entry)

    def groups(self) -> Iterator[list[IndexedRollout]]:
        """The members of each task, ordered by repeat; the tasks in the order in which they begin in the file."""
        bounds = self._bounds()
        by_start = Partitions(self._scratch, len(bounds) + 1)
        for part in range(self._parts):
            for start, group in self._grouped(self._by_task.take(part)):
                by_start.add(bisect_right(bounds, start), group)
        for part in range(len(bounds) + 1):
            for members in _in_order(by_start.take(part)):
                yield [IndexedRollout._make(member) for member in _MEMBER.iter_unpack(members)]

    def _bounds(self) -> list[int]:
        """The lines at which the parts of the second file begin: each part has about as many rollouts.

        Hashes are random, so the groups of a few parts are a random sample of all groups.
        """
        sizes: dict[int, int] = {}
        for part in range(self._parts if self._parts > 1 else 0):
            if len(sizes) >= _SAMPLE:
                break
            starts: dict[int, int] = {}
            for task, _, number in _KEYS.iter_unpack(self._by_task.read(part)):
                start = starts.setdefault(task, number)
                sizes[start] = sizes.get(start, 0) + 1
        bounds: list[int] = []
        before = 0
        share = sum(sizes.values()) / self._parts
        for start in sorted(sizes):
            if before >= share * (len(bounds) + 1):
                bounds.append(start)
            before += sizes[start]
        return bounds

    def _grouped(self, entries: bytes) -> Iterator[tuple[int, bytes]]:
        """The groups of a part, each with the line at which it begins, as a record of the second file."""
        groups: dict[int, list[tuple[int, int]]] = {}
        starts: dict[int, int] = {}
        size = _ENTRY.size
        for position, (task, repeat, number) in enumerate(_KEYS.iter_unpack(entries)):
            if task not in groups:
                groups[task], starts[task] = [], number
            groups[task].append((repeat, position * size))
        for task, members in groups.items():
            members.sort()
            start = starts[task]
            packed = [entries[at + _HASH : at + size] for _, at in members]
            yield start, b"".join([_GROUP.pack(start, len(packed) * _MEMBER.size), *packed])


def _in_order(groups: bytes) -> Iterator[memoryview]:
    """The members of each group of a part, in the order in which the groups begin."""
    ordered, position, view = [], 0, memoryview(groups)
    while position < len(groups):
        start, length = _GROUP.unpack_from(groups, position)
        position += _GROUP.size
        ordered.append((start, view[position : position + length]))
        position += length
    ordered.sort(key=itemgetter(0))
    return (members for _, members in ordered)
