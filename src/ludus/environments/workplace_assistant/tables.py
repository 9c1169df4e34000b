"""The tables of the office: read once and shared by all sessions, with copy on write.

A row is never changed in place: an update replaces it with a new row. So a session stores only its differences from the
shared rows, and copying a session copies only those.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from ludus.errors import UserError

Row = dict[str, Any]

SHIPPED = Path(__file__).parent / "data" / "tables"

#: The subfolders of `resources.tables` in which a file of the public data may be.
PLACES = ("", "processed", "raw", "csv_data/processed", "csv_data/raw")

EMAILS = ("email_id", "inbox/outbox", "sender/recipient", "subject", "sent_datetime", "body")
EVENTS = ("event_id", "event_name", "participant_email", "event_start", "duration")
TASKS = ("task_id", "task_name", "assigned_to_email", "list_name", "due_date", "board")
CUSTOMERS = tuple(
    "customer_id assigned_to_email customer_name customer_email customer_phone last_contact_date product_interest"
    " status follow_up_by notes".split()
)
VISITS = ("date_of_visit", "visitor_id", "page_views", "session_duration_seconds", "traffic_source", "user_engaged")


@dataclass(frozen=True)
class Sheet:
    """A table at the start of a session. The first column is the id."""

    columns: tuple[str, ...]
    rows: tuple[Row, ...]

    @property
    def key(self) -> str:
        return self.columns[0]

    @cached_property
    def by_id(self) -> dict[str, Row]:
        return {row[self.key]: row for row in self.rows}

    @cached_property
    def labelled(self) -> list[tuple[int, Row]]:
        return list(enumerate(self.rows))

    @cached_property
    def highest(self) -> int:
        return max((int(number) for number in self.by_id), default=-1)


@dataclass(frozen=True)
class Tables:
    """The data that all sessions share."""

    emails: Sheet
    events: Sheet
    tasks: Sheet
    customers: Sheet
    visits: tuple[Row, ...]
    directory: tuple[str, ...]

    @cached_property
    def days(self) -> dict[str, list[Row]]:
        """The visits of each day, by date."""
        days: dict[str, list[Row]] = {}
        for row in sorted(self.visits, key=lambda row: str(row["date_of_visit"])):
            days.setdefault(row["date_of_visit"], []).append(row)
        return days

    @cached_property
    def visitors(self) -> frozenset[str]:
        """The ids of all visitors."""
        return frozenset(row["visitor_id"] for row in self.visits)

    def hold(self, text: str) -> bool:
        """Whether a cell contains a text, ignoring case and line breaks."""
        return " ".join(text.lower().split()) in self._texts

    @cached_property
    def _texts(self) -> str:
        """All cells with words, in lower case, one a line."""
        sheets = (self.emails, self.events, self.tasks, self.customers)
        cells = (cell for sheet in sheets for row in sheet.rows for cell in row.values() if cell)
        return "\n".join(" ".join(cell.lower().split()) for cell in (*self.directory, *cells))

    @classmethod
    def load(cls, folder: Path | None = None) -> Tables:
        """Read the CSV files of a folder; by default those that ship with the environment."""
        folder = (folder or SHIPPED).expanduser()
        return cls(
            emails=_sheet(folder, "emails.csv", EMAILS),
            events=_sheet(folder, "calendar_events.csv", EVENTS),
            tasks=_sheet(folder, "project_tasks.csv", TASKS),
            customers=_sheet(folder, "customer_relationship_manager_data.csv", CUSTOMERS),
            visits=tuple(
                {**row, "user_engaged": row["user_engaged"] == "True"}
                for row in _rows(folder, "analytics_data.csv", VISITS)
            ),
            directory=tuple(line[0] for line in _lines(folder, "email_addresses.csv")),
        )


class Table:
    """A table in one session: the shared rows, and the session's changed rows by id (None: deleted)."""

    __slots__ = ("_highest", "added", "changed", "edits", "sheet")

    def __init__(self, sheet: Sheet) -> None:
        self.sheet = sheet
        self.changed: dict[str, Row | None] = {}
        self.added: dict[str, Row] = {}
        self.edits = 0
        self._highest: int | None = None

    def copy(self) -> Self:
        """A copy for another session."""
        twin = type(self)(self.sheet)
        twin.changed, twin.added = self.changed.copy(), self.added.copy()
        twin.edits, twin._highest = self.edits, self._highest
        return twin

    def rows(self) -> Sequence[Row]:
        """All rows: first those of the file in their order, then the new rows."""
        if not self.changed and not self.added:
            return self.sheet.rows
        key = self.sheet.key
        current = (self.changed.get(row[key], row) for row in self.sheet.rows)
        return [row for row in current if row is not None] + [*self.added.values()]

    def find(self, key: Any) -> Row | None:
        """The row with an id."""
        if key in self.added:
            return self.added[key]
        return self.changed[key] if key in self.changed else self.sheet.by_id.get(key)

    def add(self, row: Row) -> None:
        """Append a row with a new id."""
        self.edits += 1
        self.added[row[self.sheet.key]] = row
        self._highest = max(self.highest(), int(row[self.sheet.key]))

    def remove(self, key: Any) -> bool:
        """Delete a row; False if there is no such row."""
        if self.find(key) is None:
            return False
        self.edits += 1
        if self.highest() == int(key):
            self._highest = None
        if self.added.pop(key, None) is None:
            self.changed[key] = None
        return True

    def update(self, key: Any, field: str, value: Any) -> bool:
        """Change a field of a row; False if there is no such row."""
        row = self.find(key)
        if row is None:
            return False
        self.edits += 1
        place: dict[str, Any] = self.added if key in self.added else self.changed
        place[key] = {**row, field: value}
        return True

    def highest(self) -> int:
        """The highest id in use."""
        if self._highest is None:
            key = self.sheet.key
            untouched = not self.changed and not self.added
            self._highest = self.sheet.highest if untouched else max((int(row[key]) for row in self.rows()), default=-1)
        return self._highest


class Office:
    """All changes of one session, in one object that is cheap to copy."""

    __slots__ = ("customers", "durations_as_floats", "emails", "events", "plots", "sent", "tables", "tasks")

    def __init__(self, tables: Tables, table: type[Table] = Table) -> None:
        self.tables = tables
        self.emails = table(tables.emails)
        self.events = table(tables.events)
        self.tasks = table(tables.tasks)
        self.customers = table(tables.customers)
        self.plots: list[str] = []
        #: Every sent mail, even if its copy in the outbox was deleted.
        self.sent: list[Row] = []
        self.durations_as_floats = False

    def copy(self) -> Office:
        """A copy for another session."""
        twin = Office.__new__(Office)
        twin.tables, twin.durations_as_floats = self.tables, self.durations_as_floats
        twin.emails, twin.events = self.emails.copy(), self.events.copy()
        twin.tasks, twin.customers = self.tasks.copy(), self.customers.copy()
        twin.plots, twin.sent = self.plots.copy(), self.sent.copy()
        return twin

    @property
    def edits(self) -> int:
        """How many changes were made."""
        return sum(table.edits for table in (self.emails, self.events, self.tasks, self.customers)) + len(self.plots)


def _sheet(folder: Path, name: str, columns: tuple[str, ...]) -> Sheet:
    sheet = Sheet(columns, tuple(_rows(folder, name, columns)))
    for number, times in Counter(row[sheet.key] for row in sheet.rows).items():
        if times > 1 or number is None or not (number.isascii() and number.isdigit()):
            shown = f"{number} twice" if times > 1 else number or "an empty cell"
            raise UserError(f"{name}: {sheet.key} must be a unique number in every row, not {shown}")
    return sheet


def _rows(folder: Path, name: str, columns: tuple[str, ...]) -> Iterable[Row]:
    lines = _lines(folder, name)
    header = tuple(lines[0]) if lines else ()
    if header != columns:
        raise UserError(f"{name}: the columns must be {', '.join(columns)}, not {', '.join(header) or 'none'}")
    for number, line in enumerate(lines[1:], start=2):
        if len(line) != len(columns):
            raise UserError(f"{name}: row {number} has {len(line)} cells, not {len(columns)}")
        yield {column: cell or None for column, cell in zip(columns, line, strict=True)}


def _lines(folder: Path, name: str) -> list[list[str]]:
    path = next((csv_file for place in PLACES if (csv_file := folder / place / name).is_file()), None)
    if path is None:
        raise UserError(
            f"there is no {name} in {folder}", "Name a folder with the CSV files: --set resources.tables=FOLDER"
        )
    with path.open(encoding="utf-8", newline="") as file:
        return [line for line in csv.reader(file) if line]
