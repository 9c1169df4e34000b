"""Compares the tables of two offices: a session's, and those after the right actions.

The order of independent actions and the ids of new rows do not matter, unless a new row takes the number of a deleted
one: after the highest number is deleted, the next new row gets it. Letter case matters only in columns with a few
fixed values. Dates are compared as moments: `2023-12-01T09:00` is `2023-12-01 09:00:00`. Deleting the copy of a sent
mail does not unsend it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from ludus.environments.workplace_assistant.rules import parse
from ludus.environments.workplace_assistant.tables import Office, Row, Table

#: The columns in which letter case matters.
EXACT = frozenset({"status", "list_name", "board"})

#: The columns that hold a day or a moment.
DATES = frozenset({"event_start", "due_date", "last_contact_date", "follow_up_by", "sent_datetime"})


def differences(left: Office, right: Office) -> list[str]:
    """The tables that differ."""
    names = [
        name
        for name in ("emails", "events", "tasks", "customers")
        if _changes(getattr(left, name)) != _changes(getattr(right, name))
    ]
    if Counter(left.plots) != Counter(right.plots):
        names.append("plots")
    if _contents(left.sent) != _contents(right.sent) and "emails" not in names:
        names.append("emails")
    return names


def changes_nothing(office: Office) -> bool:
    """Whether an office equals an unused office."""
    return not differences(office, Office(office.tables))


def _changes(table: Table) -> tuple[Any, ...]:
    """The deleted rows, the changed rows, the new rows with the number of a deleted one, and all new rows."""
    before = table.sheet.by_id
    deleted = {key for key, row in table.changed.items() if row is None}
    now = {key: _content(row) for key, row in table.changed.items() if row is not None}
    changed = {key: row for key, row in now.items() if row != _content(before[key])}
    reused = {int(key): _content(row) for key, row in table.added.items() if int(key) <= table.sheet.highest}
    return deleted, changed, reused, _contents(table.added.values())


def _contents(rows: Iterable[Row]) -> Counter[tuple[Any, ...]]:
    return Counter(map(_content, rows))


def _content(row: Row) -> tuple[Any, ...]:
    """All cells but the id, which is the first."""
    return tuple(_comparable(name, row[name]) for name in list(row)[1:])


def _comparable(name: str, value: Any) -> Any:
    """A cell in lower case, except in EXACT columns; a duration as a number, a date as a moment."""
    if value is None or name in EXACT:
        return value
    if name in DATES:
        return parse(value) or value
    if name == "duration":
        return int(value) if value.isdigit() else value
    return value.lower()
