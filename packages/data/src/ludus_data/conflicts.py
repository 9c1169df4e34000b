"""Conflicts between collated datasets: rows that contradict each other, and rows that leak from train to validation.

The memory is about 150 bytes for each different prompt.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ludus.record import Row
from ludus_data.field_stats import RowFields
from ludus_data.row_text import RowPart, content_digest

TRAIN, HELD_OUT = "train", ("validation", "test", "benchmark")

_TYPES, _DIFFER, _LEAK = "types_differ", "rows_differ", "in_train_too"


@dataclass
class Conflict:
    """One kind of conflict: how many rows have it, the first of them, and a sentence."""

    kind: str
    message: str
    rows: int = 0
    where: str | None = None

    def as_json(self) -> dict[str, Any]:
        """All fields."""
        return asdict(self)


class Conflicts:
    """Looks at every row of every split: train must come first, so that held-out rows can be compared with it."""

    def __init__(self) -> None:
        self._prompt = RowPart()
        self._train: dict[int, int] = {}  # hash of a prompt in train -> hash of its row
        self._conflicts: dict[str, Conflict] = {}

    def look(self, where: str, split: str, row: Row) -> None:
        """Look at one row."""
        prompt = int.from_bytes(self._prompt.digest(where, row)[:8], "big")
        if split == TRAIN:
            content = int.from_bytes(content_digest(where, row)[:8], "big")
            if self._train.setdefault(prompt, content) != content:
                self._add(_DIFFER, where, "rows of train have the prompt of another row and differ in other fields")
        elif split in HELD_OUT and prompt in self._train:
            self._add(_LEAK, where, "held-out rows have a prompt of train")

    def all(self, fields: dict[tuple[str, str], RowFields]) -> list[Conflict]:
        """All conflicts. `fields` are the statistics by split and environment; they show fields that differ in type."""
        return [*self._conflicts.values(), *_types(fields)]

    def _add(self, kind: str, where: str, message: str) -> None:
        conflict = self._conflicts.setdefault(kind, Conflict(kind, message, where=where))
        conflict.rows += 1


def _types(fields: dict[tuple[str, str], RowFields]) -> list[Conflict]:
    """Fields whose type differs between environments of the same split: one table cannot hold both types."""
    conflicts = []
    for split in dict.fromkeys(split for split, _ in fields):
        types: dict[str, dict[str, list[str]]] = {}
        for (of, environment), described in fields.items():
            for name, stats in described.fields.items() if of == split else ():
                types.setdefault(name, {}).setdefault(" or ".join(sorted(stats.types)), []).append(environment)
        for name, by_type in types.items():
            by_type.pop("", None)  # the field is always null there
            if len(by_type) > 1:
                kinds = ", ".join(f"{kind} in {' and '.join(names)}" for kind, names in by_type.items())
                conflicts.append(Conflict(_TYPES, f"{split}: {name} is {kinds}"))
    return conflicts
