"""What a session has done to the office, compared with what should have been done.

The order of independent actions does not count, nor do the numbers that new rows happen to get. Letter case counts
only where a value is one of a few. A mail that went out cannot be taken back by deleting the copy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from ludus.environments.workplace_assistant.tables import Office, Row, Table

#: The columns whose letter case counts.
EXACT = frozenset({"status", "list_name", "board"})


def differences(left: Office, right: Office) -> list[str]:
    """The tables that differ."""
    names = [
        name
        for name in ("emails", "events", "tasks", "customers")
        if _footprint(getattr(left, name)) != _footprint(getattr(right, name))
    ]
    if Counter(left.plots) != Counter(right.plots):
        names.append("plots")
    if _contents(left.sent) != _contents(right.sent) and "emails" not in names:
        names.append("emails")
    return names


def changes_nothing(office: Office) -> bool:
    """Whether an office is as it was at first."""
    return not differences(office, Office(office.tables))


def _footprint(table: Table) -> tuple[Any, ...]:
    """What is different from the shared rows: what is gone, what has changed, and what is new."""
    before = table.sheet.by_id
    gone = {key for key, row in table.changed.items() if row is None}
    now = {key: _content(row) for key, row in table.changed.items() if row is not None}
    return gone, {key: row for key, row in now.items() if row != _content(before[key])}, _contents(table.added.values())


def _contents(rows: Iterable[Row]) -> Counter[tuple[Any, ...]]:
    return Counter(map(_content, rows))


def _content(row: Row) -> tuple[Any, ...]:
    """All cells but the id, which is the first."""
    return tuple(_meant(name, row[name]) for name in list(row)[1:])


def _meant(name: str, value: Any) -> Any:
    """A cell by what it says, whatever its case; a duration is a number, however it is written."""
    if value is None or name in EXACT:
        return value
    if name == "duration":
        return int(value) if value.isdigit() else value
    return value.lower()
