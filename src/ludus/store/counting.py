"""Which line of a rollout counts: the one rule, for every command that reads a run.

A rollout is named by its `rollout_id` and its `task_id`.

- In `rollouts.jsonl` the first line of a rollout counts, whatever its outcome. Later lines are duplicates.
- In `failures.jsonl` the first line of each attempt counts. Later lines of the same attempt are duplicates.
- A rollout with a line in `rollouts.jsonl` ended as that line says, and its failed attempts were tried again. Any other
  rollout ended with the last of its failed attempts.
- A row without a `rollout_id`, or with an empty one, was written by another program, NeMo Gym for example. Nothing says
  that two such rows are one rollout, so each of them counts.
- A last line without a newline is torn, and does not count, unless it is whole JSON.

A resumed collection, which skips the rollouts that its journals hold, has always counted so. `ludus verify` may turn a
completed line into a failed one: because the first line counts, an older duplicate behind it does not come back. A
group is judged without duplicates. `ludus merge` applies the rule to the lines of all shards together.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Container
from typing import Any, Generic, TypeVar

from ludus.errors import Failure
from ludus.record import Row
from ludus.store.parsing import parse

Key = TypeVar("Key")

#: How a line begins that Ludus wrote. It says which rollout it is of, and the line need not be parsed.
_match = re.compile(rb'\{"rollout_id":"[^"\\]+","task_id":"[^"\\]*"').match


def name_of_line(lines: bytes, begin: int = 0, end: int | None = None) -> bytes | None:
    """What names the rollout of the line from `begin` to `end`; None for a line without a rollout id."""
    head = _match(lines, begin)
    if head is not None:
        return head.group()
    if lines.find(b"rollout_id", begin, end) < 0:
        return None
    try:
        return name_of_row(parse(lines[begin:end]))
    except (Failure, RecursionError):
        return None


def name_of_row(row: Row) -> bytes | None:
    """What names the rollout of a row; None for a row without a rollout id."""
    name, task = row.get("rollout_id"), row.get("task_id")
    if not isinstance(name, str) or not name:
        return None
    task_id = str(task) if isinstance(task, (str, int)) else ""
    return f'{{"rollout_id":"{name}","task_id":"{task_id}"'.encode("utf-8", "surrogatepass")


def attempt_of(row: Row) -> int:
    """The number of an attempt."""
    attempt: Any = row.get("attempt", 1)
    return attempt if isinstance(attempt, int) else 1


#: The places of a new table, and the share of a table that is used before it grows.
_PLACES, _USED = 1 << 15, 0.66
_KEYS = 2**64 - 1


class SeenRollouts:
    """A set of names of rollouts, in 12 to 24 bytes each: a run may have millions of rollouts.

    It holds 64-bit hashes, which nobody outside the process can predict. The chance that any two of a million rollouts
    share one is 3 in 100 million.
    """

    def __init__(self) -> None:
        self._table, self._mask, self._left = array("Q", bytes(8 * _PLACES)), _PLACES - 1, int(_USED * _PLACES)

    def is_first(self, lines: bytes, begin: int = 0, end: int | None = None) -> bool:
        """Whether the line from `begin` to `end` is the first of its rollout. Lines must come in order, each once."""
        head = _match(lines, begin)
        name = head.group() if head is not None else name_of_line(lines, begin, end)
        return name is None or self.add(name)

    def add(self, name: bytes) -> bool:
        """Add a rollout. Returns whether it is new."""
        key, table, mask = hash(name) & _KEYS or 1, self._table, self._mask
        at = key & mask
        while held := table[at]:
            if held == key:
                return False
            at = (at + 1) & mask
        table[at] = key
        self._left -= 1
        if not self._left:
            self._grow()
        return True

    def __contains__(self, name: object) -> bool:
        key, at = hash(name) & _KEYS or 1, 0
        at = key & self._mask
        while (held := self._table[at]) and held != key:
            at = (at + 1) & self._mask
        return bool(held)

    def _grow(self) -> None:
        mask = self._mask = 2 * self._mask + 1
        table = array("Q", bytes(8 * (mask + 1)))
        for key in filter(None, self._table):
            at = key & mask
            while table[at]:
                at = (at + 1) & mask
            table[at] = key
        self._table, self._left = table, int(_USED * (mask + 1) / 2)


class CountedAttempts(Generic[Key]):
    """The failed attempts of a run. `ended` holds the rollouts of `rollouts.jsonl`, all of them.

    `add` the lines of `failures.jsonl` in order; `last` then has the line with which each rollout ended that is not in
    `ended`.
    """

    def __init__(self, ended: Container[Key]) -> None:
        self._ended = ended
        self._seen: set[tuple[Key, int]] = set()
        self.last: dict[Key, int] = {}

    def add(self, key: Key, attempt: int, line: int) -> bool:
        """Add a line. Returns whether it counts."""
        if (key, attempt) in self._seen:
            return False
        self._seen.add((key, attempt))
        if key not in self._ended:
            self.last[key] = line
        return True
