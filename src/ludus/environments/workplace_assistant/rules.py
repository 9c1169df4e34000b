"""The rules of the office: which values it accepts, and how it searches. `reference.py` has the reference's rules.

A violated rule raises a `Refusal`, and the model reads its text.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, time
from typing import Any, NoReturn, TypeVar

from ludus.environments.workplace_assistant.tables import Office, Row, Table

T = TypeVar("T")

#: The fixed time of the office's clock, as in the system prompt.
NOW = "2023-11-30 23:59:00"

DAY = "YYYY-MM-DD"
MOMENT = "YYYY-MM-DD HH:MM:SS"

STATUSES = ("Qualified", "Won", "Lost", "Lead", "Proposal")
PRODUCTS = ("Software", "Hardware", "Services", "Consulting", "Training")

_NUMBER = re.compile(r"[0-9]{1,6}")
_COMPACT = re.compile(r"[0-9]{8}")
_MOMENT = re.compile(r"([0-9]{4})[-/]([0-9]{1,2})(?:[-/]([0-9]{1,2}))?(?:[T ]([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?)?")


class Refusal(Exception):
    """A call that the office refuses; the text says why."""


class Rules:
    """The rules of the office."""

    table = Table
    #: Fields that no update may change: the ids.
    fixed: frozenset[str] = frozenset({"task_id", "customer_id"})

    async def containing(self, rows: Iterable[Row], text: str, *columns: str) -> Sequence[Row]:
        """The rows that contain a text in one of the columns, ignoring case."""
        needle = text.lower()
        return [row for row in rows if any(needle in (row[column] or "").lower() for column in columns)]

    async def addresses(self, directory: Iterable[str], name: str) -> list[str]:
        """The addresses that contain a name."""
        return [
            row["address"]
            for row in await self.containing(({"address": address} for address in directory), name, "address")
        ]

    def between(
        self, items: Iterable[T], when: Callable[[T], Any], low: tuple[str, Any], high: tuple[str, Any]
    ) -> Sequence[T]:
        """The items between two bounds, each a name and a value. An upper bound without a time is the end of a day."""
        items = list(items)
        if low[1]:
            first = self.moment(*low, DAY)
            items = [item for item in items if (at := parse(when(item))) is not None and at >= first]
        if high[1]:
            last = self.moment(*high, DAY)
            if ":" not in high[1]:
                last = datetime.combine(last, time.max)
            items = [item for item in items if (at := parse(when(item))) is not None and at <= last]
        return items

    def moment(self, name: str, value: Any, form: str = MOMENT) -> datetime:
        """The moment that a text spells."""
        return parse(value) or _refuse(name, form)

    def start(self, event: Row) -> datetime:
        """The start of an event."""
        return parse(event["event_start"]) or datetime.min

    def dated(self, name: str, value: Any) -> None:
        """Check a field for a day or a moment."""
        if value and parse(value) is None:
            _refuse(name, DAY)

    def day(self, name: str, value: Any) -> None:
        """Check a field for a day, which must be written YYYY-MM-DD since it is compared as text."""
        at = parse(value)
        if at is None or value != f"{at:%Y-%m-%d}":
            _refuse(name, DAY)

    def minutes(self, value: Any) -> None:
        """Check the duration of an event."""
        if not _NUMBER.fullmatch(value):
            raise Refusal("Invalid duration format. Expected a number of minutes.")
        if not int(value):
            raise Refusal("Duration must be a positive number of minutes.")

    def address(self, name: str, value: Any) -> None:
        """Check a field for an email address."""
        if not looks_like_address(value):
            _refuse(name, "an email address")

    def event_id(self, value: Any) -> None:
        """Check the form of an event's id, so that a malformed id is not reported as "Event not found."."""
        if not (isinstance(value, str) and _COMPACT.fullmatch(value)):
            _refuse("event_id", "8 digits")

    def one_status(self, text: str) -> None:
        """Refuse a text that is part of several statuses."""
        needle = text.lower()
        if sum(needle in status.lower() for status in STATUSES) > 1:
            raise Refusal(choose("Status", STATUSES))

    def new_customer(self, row: Row) -> None:
        """Check a new customer as strictly as an update."""
        self.address("assigned_to_email", row["assigned_to_email"])
        if row["status"] not in STATUSES:
            raise Refusal(choose("Status", STATUSES))
        if row["product_interest"] and row["product_interest"] not in PRODUCTS:
            raise Refusal(choose("Product interest", PRODUCTS))
        self.dated("last_contact_date", row["last_contact_date"])
        self.dated("follow_up_by", row["follow_up_by"])

    def averaged(self, office: Office, bounded: bool) -> None:
        """A hook for the reference, where averaging changes how visits are shown. Here it does nothing."""

    def new_id(self, table: Table) -> str:
        """The id of the next row of a table, with leading zeros."""
        return f"{table.highest() + 1:08d}"

    def new_email_id(self, table: Table) -> str:
        """The id of the next email, without leading zeros; as a number it is higher than all others."""
        return str(table.highest() + 1)


def parse(value: Any) -> datetime | None:
    """A day or a moment, year first, without a time zone; None for any other text."""
    return _parsed(value) if isinstance(value, str) and len(value) <= len(MOMENT) else None


@functools.lru_cache(maxsize=4096)
def _parsed(text: str) -> datetime | None:
    match = _MOMENT.fullmatch(f"{text[:4]}-{text[4:6]}-{text[6:]}" if _COMPACT.fullmatch(text) else text)
    if match is None:
        return None
    year, month, day, hour, minute, second = (int(part) if part else None for part in match.groups())
    try:
        return datetime(year or 0, month or 0, 1 if day is None else day, hour or 0, minute or 0, second or 0)
    except ValueError:
        return None


def looks_like_address(value: str) -> bool:
    """The loose check that all tools use for an address."""
    return "@" in value and "." in value


def choose(name: str, choices: Iterable[str], end: str = "") -> str:
    """The text that refuses a value and lists the valid ones."""
    return f"{name} not valid. Please choose from: {', '.join(map(repr, choices))}{end}"


def _refuse(name: str, form: str) -> NoReturn:
    raise Refusal(f"Invalid {name} format. Expected {form}.")
