"""A table that many sessions read and each session changes for itself.

The database of the airline is 7 MB of JSON, too much to copy for each rollout. An `Overlay` copies an entry when it is
looked up, and reads all others from the shared table.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, MutableMapping
from typing import Any


class Overlay(MutableMapping[str, Any]):
    """A shared table with the entries of one session over it.

    `values` and `items` give entries of the shared table as they are: what they yield must only be read.
    """

    def __init__(self, table: dict[str, Any]) -> None:
        self.table = table
        self.own: dict[str, Any] = {}
        self.removed: set[str] = set()

    def __getitem__(self, key: str) -> Any:
        if key not in self.own:
            if key in self.removed:
                raise KeyError(key)
            self.own[key] = copy.deepcopy(self.table[key])
        return self.own[key]

    def __setitem__(self, key: str, entry: Any) -> None:
        self.own[key] = entry
        self.removed.discard(key)

    def __delitem__(self, key: str) -> None:
        self[key]
        del self.own[key]
        self.removed.add(key)

    def __contains__(self, key: object) -> bool:
        return key in self.own or (key in self.table and key not in self.removed)

    def __iter__(self) -> Iterator[str]:
        yield from (key for key in self.table if key not in self.removed)
        yield from (key for key in self.own if key not in self.table)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def items(self) -> Iterator[tuple[str, Any]]:  # type: ignore[override]
        """Keys and entries, to read."""
        for key in list(self):
            yield key, self.own[key] if key in self.own else self.table[key]

    def values(self) -> Iterator[Any]:  # type: ignore[override]
        """Entries, to read."""
        return (entry for _, entry in self.items())

    def drop_copies(self) -> None:
        """Forget the copies that nobody changed."""
        self.own = {key: entry for key, entry in self.own.items() if key not in self.table or entry != self.table[key]}

    def changes(self) -> dict[str, str | None]:
        """The entries that differ from those of the shared table, as JSON; None for a removed one."""
        written = {key: as_json(entry) for key, entry in self.own.items()}
        differing: dict[str, str | None] = {
            key: text for key, text in written.items() if key not in self.table or as_json(self.table[key]) != text
        }
        return differing | dict.fromkeys(self.removed & self.table.keys())


def as_json(value: Any) -> str:
    """A pydantic model or a plain value as JSON with sorted keys, as tau2 writes it for its digests."""
    return json.dumps(value.model_dump() if hasattr(value, "model_dump") else value, sort_keys=True, default=str)
