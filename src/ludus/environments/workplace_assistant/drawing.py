"""Helpers that all kinds of tasks share: random draws from the tables, descriptions of rows, and actions on them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, timedelta
from random import Random

from ludus.environments.workplace_assistant.tables import Row, Tables

Action = tuple[str, dict[str, str]]

TODAY = date(2023, 11, 30)

#: The largest number of actions of a task; an agent has six turns.
MOST_ACTIONS = 5


@dataclass(frozen=True)
class Draw:
    """The tables and a random number generator."""

    tables: Tables
    rng: Random

    def person(self) -> str:
        """The address of a colleague."""
        return self.rng.choice(self.tables.directory)

    def two_of(self, people: set[str]) -> list[str]:
        """Two different people."""
        return self.rng.sample(sorted(people), 2)

    def coming_day(self) -> date:
        """A working day in December."""
        days = [TODAY + timedelta(days=number) for number in range(1, 30)]
        return self.rng.choice([day for day in days if day.weekday() < 5])


def few(rows: Iterable[Row], **values: str) -> list[Row]:
    """The rows with these values; none if there are more than MOST_ACTIONS."""
    matching = [row for row in rows if all(row[name] == value for name, value in values.items())]
    return matching if len(matching) <= MOST_ACTIONS else []


def last_like(draw: Draw) -> Row:
    """The last email with the sender and subject of a random email."""
    drawn = draw.rng.choice(draw.tables.emails.rows)
    same = ("sender/recipient", "subject")
    alike = [row for row in draw.tables.emails.rows if all(row[name] == drawn[name] for name in same)]
    return max(alike, key=lambda row: str(row["sent_datetime"]))


def values_of(rows: Iterable[Row], column: str) -> list[str]:
    """The distinct values of a column, sorted."""
    return sorted({row[column] for row in rows})


def start_of(event: Row) -> str:
    """The start of an event, as a text that sorts by time."""
    return str(event["event_start"])


def first_name(address: str) -> str:
    """The first name, which is unique in the office."""
    return address.partition(".")[0].capitalize()


def spoken_day(day: date) -> str:
    """A day as in "November 30"."""
    return f"{day:%B} {day.day}"


def clock(half: int) -> str:
    """A time, given in half hours since midnight."""
    return f"{half // 2:02d}:{half % 2 * 30:02d}"


def book_event(name: str, who: str, start: str, minutes: int) -> Action:
    """Create an event."""
    values = {"event_name": name, "participant_email": who, "event_start": start, "duration": str(minutes)}
    return "calendar_create_event", values


def update_event(row: Row, field: str, value: str) -> Action:
    """Change an event."""
    return "calendar_update_event", {"event_id": row["event_id"], "field": field, "new_value": value}


def update_task(row: Row, field: str, value: str) -> Action:
    """Change a task."""
    return "project_management_update_task", {"task_id": row["task_id"], "field": field, "new_value": value}


def update_customer(row: Row, field: str, value: str) -> Action:
    """Change a customer."""
    arguments = {"customer_id": row["customer_id"], "field": field, "new_value": value}
    return "customer_relationship_manager_update_customer", arguments
