"""Shards: a collection that is split among processes. They share nothing but their input.

Tasks go to the shards round robin: the first to shard 1, the second to shard 2, and so on. Every process reads all rows
in the same order and plays only its own tasks, so ids and seeds are those of the unsharded run. All repeats of a task
are in one shard, and so are rows with the same id, also if suffixes tell them apart.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple, Self

from ludus.errors import UserError

#: More than anyone starts processes.
MAX_SHARDS = 1_000_000
_SHARD = re.compile(r"([0-9]{1,7})/([0-9]{1,7})")


class Shard(NamedTuple):
    """One of `total` shards. The first has the number 1."""

    number: int
    total: int

    @classmethod
    def parse(cls, text: Any) -> Self:
        """Read `2/8`."""
        match = _SHARD.fullmatch(text) if isinstance(text, str) else None
        number, total = (int(match[1]), int(match[2])) if match is not None else (0, 0)
        if not 1 <= number <= total <= MAX_SHARDS:
            problem = f"shard {text!r:.40} is not I/N with I from 1 to N, and N at most {MAX_SHARDS:,}"
            raise UserError(problem, "Example: --shard 2/8")
        return cls(number, total)

    def __str__(self) -> str:
        return f"{self.number}/{self.total}"


class Split:
    """Tells which tasks are in a shard: call `takes` once for every row, in order. Without a shard, all are."""

    def __init__(self, shard: Shard | None) -> None:
        self._shard = shard
        self._shards: dict[int, int] = {}  # the shard of each id, by the id's hash

    def takes(self, id: str) -> bool:
        """Whether the task of the next row is in the shard. `id` is the row's id without a suffix."""
        if self._shard is None:
            return True
        next_shard = len(self._shards) % self._shard.total + 1
        return self._shards.setdefault(hash(id), next_shard) == self._shard.number
