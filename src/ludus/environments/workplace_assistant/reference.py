"""The office of the reference, for `compat: true`: its rules, its tables and its grading.

The reference's tables are data frames. Two of them are equal only if the labels of their rows are equal too, so `Frame`
keeps track of the labels.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar

import orjson

from ludus.environments.workplace_assistant.cells import search
from ludus.environments.workplace_assistant.desk import Desk, is_writing
from ludus.environments.workplace_assistant.rules import DAY, MOMENT, Refusal, Rules, parse
from ludus.environments.workplace_assistant.tables import EVENTS, Office, Row, Sheet, Table
from ludus.errors import Failure
from ludus.runtime.encoding import encode
from ludus.runtime.processes import OutOfTime, in_process

T = TypeVar("T")

#: The columns in which letter case matters.
EXACT = frozenset({"status", "list_name", "board"})

#: The reference's class for each tool, by the prefix of the tool's name.
OWNERS = {
    "company_directory_": "CompanyDirectoryTool",
    "email_": "EmailTool",
    "calendar_": "CalendarTool",
    "analytics_": "AnalyticsTool",
    "project_management_": "ProjectManagementTool",
    "customer_relationship_manager_": "CustomerRelationshipManagerTool",
}
FORMATS = ("%m/%d/%Y", "%B %d %Y", "%b %d %Y", "%d %B %Y", "%d %b %Y")
TIMES = ("", " %H:%M", " %H:%M:%S", " %I:%M %p", " %I %p")
SEARCH_SECONDS = 0.5

_NOT_A_PATTERN = re.compile(r"[\w @,;:'\"/&%#=<>~-]*", re.ASCII)


class Frame(Table):
    """A table whose rows have labels. The list of entries is shared between sessions; a write replaces it."""

    __slots__ = ("entries",)

    def __init__(self, sheet: Sheet) -> None:
        super().__init__(sheet)
        self.entries = sheet.labelled

    def copy(self) -> Frame:
        twin = Frame(self.sheet)
        twin.entries, twin.edits = self.entries, self.edits
        return twin

    def rows(self) -> Sequence[Row]:
        return [row for _, row in self.entries]

    def find(self, key: Any) -> Row | None:
        name = self.sheet.key
        return next((row for _, row in self.entries if row[name] == key), None)

    def add(self, row: Row) -> None:
        """Append a row. A new event has the label 0; in the other tables all rows get new labels."""
        self.edits += 1
        if self.sheet.columns == EVENTS:
            self.entries = [*self.entries, (0, row)]
        else:
            self.entries = list(enumerate([*self.rows(), row]))

    def remove(self, key: Any) -> bool:
        name, before = self.sheet.key, len(self.entries)
        self.entries = [entry for entry in self.entries if entry[1][name] != key]
        self.edits += len(self.entries) != before
        return len(self.entries) != before

    def update(self, key: Any, field: str, value: Any) -> bool:
        name, exists = self.sheet.key, self.find(key) is not None
        self.entries = [(label, {**row, field: value} if row[name] == key else row) for label, row in self.entries]
        self.edits += exists
        return exists

    def highest(self) -> int:
        """The highest id, compared as text."""
        return int(max(str(row[self.sheet.key]) for row in self.rows()))


class ReferenceRules(Rules):
    """The rules of the reference, which accepts more."""

    table = Frame
    fixed = frozenset()

    async def containing(self, rows: Iterable[Row], text: str, *columns: str) -> Sequence[Row]:
        """The text is a regular expression. It is searched for in a child process, which can be stopped."""
        if isinstance(text, str) and _NOT_A_PATTERN.fullmatch(text):
            return await super().containing(rows, text, *columns)
        listed = list(rows)
        cells = [[str(row[column]) for column in columns if row[column] is not None] for row in listed]
        try:
            hits = await in_process(search, text, cells, cpu_seconds=SEARCH_SECONDS)
        except OutOfTime:
            raise Refusal(f"the search took more than {SEARCH_SECONDS:g} s") from None
        return [row for row, hit in zip(listed, hits, strict=True) if hit]

    def between(
        self, items: Iterable[T], when: Callable[[T], Any], low: tuple[str, Any], high: tuple[str, Any]
    ) -> Sequence[T]:
        """Dates are compared as texts."""
        items = list(items)
        if low[1]:
            items = [item for item in items if when(item) is not None and when(item) >= low[1]]
        if high[1]:
            items = [item for item in items if when(item) is not None and when(item) <= high[1]]
        return items

    def moment(self, name: str, value: Any, form: str = MOMENT) -> datetime:
        """Any text that the parser accepts. For a day, the model reads the parser's error message."""
        if form == DAY:
            return _moment(value)
        try:
            at = _moment(value)
        except ValueError:
            raise Refusal(f"Invalid {name} format. Expected {form}.") from None
        if at.tzinfo is not None and name != "event_start":
            raise TypeError("Cannot compare tz-naive and tz-aware timestamps")
        return at

    def start(self, event: Row) -> datetime:
        return _moment(event["event_start"]).replace(tzinfo=None)

    def dated(self, name: str, value: Any) -> None:
        """Accept any text as a date."""

    def day(self, name: str, value: Any) -> None:
        """Accept any text as a day."""

    def minutes(self, value: Any) -> None:
        """Accept whatever Python's `int` accepts."""
        try:
            positive = int(value) > 0
        except ValueError:
            raise Refusal("Invalid duration format. Expected a number of minutes.") from None
        if not positive:
            raise Refusal("Duration must be a positive number of minutes.")

    def address(self, name: str, value: Any) -> None:
        """Accept any text as an address."""

    def event_id(self, value: Any) -> None:
        """Accept digits of any script."""
        if not value.isdigit() or len(value) != 8:
            raise Refusal("Invalid event_id format. Expected 8 digits.")

    def one_status(self, text: str) -> None:
        """Accept a part of several statuses."""

    def new_customer(self, row: Row) -> None:
        """Accept any new customer."""

    def averaged(self, office: Office, bounded: bool) -> None:
        """Averaging all visits converts their durations to numbers."""
        office.durations_as_floats |= not bounded

    def new_email_id(self, table: Table) -> str:
        """A number without the leading zeros of all other ids."""
        return str(table.highest() + 1)


async def call(desk: Desk, name: str, values: dict[str, Any]) -> str:
    """Run a tool with unchecked arguments, and show the model the text of any exception."""
    try:
        output = await _run(desk, name, values)
    except Failure:
        raise
    except Exception as error:
        output = f"Error executing tool '{name}': {error}"
    return encode({"output": output}).decode()


async def replayed(desk: Desk, calls: Iterable[Any]) -> Office:
    """The tables of a fresh session after all calls that can change them. Calls that raise are skipped."""
    for call in calls:
        try:
            if is_writing(call["name"], type(desk)):
                await _run(desk, call["name"], orjson.loads(call["arguments"]))
        except Exception:
            continue
    return desk.office


def equal(left: Office, right: Office) -> bool:
    """Whether all tables have the same rows and labels in the same order."""
    pairs = ((getattr(left, name), getattr(right, name)) for name in ("emails", "events", "tasks", "customers"))
    same_plots = [path.lower() for path in left.plots] == [path.lower() for path in right.plots]
    return same_plots and all(_comparable(ours) == _comparable(theirs) for ours, theirs in pairs)


async def _run(desk: Desk, name: str, values: dict[str, Any]) -> Any:
    entry = desk.toolbox[name]
    method: Any = entry.function.__wrapped__  # type: ignore[attr-defined]
    known = entry.schema()["parameters"]["properties"]
    for key in values:
        if key not in known:
            prefix, owner = next(pair for pair in OWNERS.items() if name.startswith(pair[0]))
            raise TypeError(f"{owner}.{name.removeprefix(prefix)}() got an unexpected keyword argument '{key}'")
    missing = {key: None for key in entry.schema()["parameters"]["required"] if key not in values}
    try:
        return await method(desk, **values, **missing)
    except Refusal as refusal:
        return str(refusal)


def _comparable(table: Table) -> list[Any]:
    assert isinstance(table, Frame)
    return [(label, {name: _cell(name, value) for name, value in row.items()}) for label, row in table.entries]


def _cell(name: str, value: Any) -> Any:
    """A text in lower case; any other value is dropped."""
    if name in EXACT:
        return value
    return value.lower() if isinstance(value, str) else None


def _moment(value: Any) -> datetime:
    """A moment in one of the usual formats; a number is nanoseconds since 1970."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise TypeError(f"Cannot convert input [{value}] of type {type(value)} to Timestamp")
    if not isinstance(value, str):
        return datetime(1970, 1, 1) + timedelta(microseconds=value / 1000)
    moment = parse(value)
    if moment is not None:
        return moment
    try:
        return datetime.fromisoformat(value)
    except ValueError:
        pass
    text = " ".join(value.replace(",", " ").split())
    for form in (day + time for day in FORMATS for time in TIMES):
        try:
            return datetime.strptime(text, form)
        except ValueError:
            continue
    raise ValueError(f"Unknown datetime string format, unable to parse: {value}")
