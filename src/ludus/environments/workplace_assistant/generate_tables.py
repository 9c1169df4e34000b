"""Generates the tables that ship with the environment. The same seed gives the same files, byte for byte."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime, timedelta
from random import Random
from typing import Any

from ludus.environments.workplace_assistant import tables, words
from ludus.environments.workplace_assistant.projects import BOARDS, LISTS
from ludus.environments.workplace_assistant.rules import PRODUCTS, STATUSES

TODAY = date(2023, 11, 30)
SOURCES = ("direct", "direct", "direct", "social media", "social media", "search engine", "referral")

Cells = Sequence[Any]


def files(seed: int) -> dict[str, str]:
    """The content of every CSV file, by its name."""
    people = [words.address(person) for person in words.PEOPLE]

    def table(name: str, columns: Cells, draw: Callable[[Random, list[str]], Iterable[Cells]]) -> str:
        rows = list(draw(Random(f"{seed}/{name}"), people))
        ids = Random(f"{seed}/{name}/ids").sample(range(len(rows)), len(rows))  # an id says nothing about its row
        return _csv([columns, *((f"{number:08d}", *row) for number, row in zip(ids, rows, strict=True))])

    return {
        "email_addresses.csv": _csv([[address] for address in people]),
        "emails.csv": table("emails", tables.EMAILS, _emails),
        "calendar_events.csv": table("events", tables.EVENTS, _events),
        "project_tasks.csv": table("tasks", tables.TASKS, _tasks),
        "customer_relationship_manager_data.csv": table("customers", tables.CUSTOMERS, _customers),
        "analytics_data.csv": _csv([tables.VISITS, *_visits(Random(f"{seed}/visits"))]),
    }


def _emails(rng: Random, people: list[str]) -> Iterable[Cells]:
    """Mails of two months, oldest first, each at another time."""
    minutes = sorted(rng.sample(range(60 * 24 * 60), 240))
    for minute in minutes:
        sent = datetime(2023, 10, 1) + timedelta(minutes=minute, seconds=rng.randrange(60))
        topic = rng.choice(words.TOPICS)
        subject = rng.choice(words.SUBJECTS).format(topic)
        yield "inbox", rng.choice(people), subject, f"{sent:%Y-%m-%d %H:%M:%S}", rng.choice(words.BODIES).format(topic)


def _events(rng: Random, people: list[str]) -> Iterable[Cells]:
    """Meetings on working days, earliest first, each with another start."""
    days = [date(2023, 11, 1) + timedelta(days=number) for number in range(59)]
    slots = [(day, half) for day in days if day.weekday() < 5 for half in range(18, 34)]
    for day, half in sorted(rng.sample(slots, 180)):
        start = f"{day} {half // 2:02d}:{half % 2 * 30:02d}:00"
        longest = min(120, (36 - half) * 30)
        duration = rng.choice([minutes for minutes in (30, 60, 90, 120) if minutes <= longest])
        yield rng.choice(words.MEETINGS), rng.choice(people), start, duration


def _tasks(rng: Random, people: list[str]) -> Iterable[Cells]:
    """Tasks of a month, by due date."""
    for due in sorted(rng.randrange(-10, 21) for _ in range(180)):
        name = f"{rng.choice(words.VERBS)} {rng.choice(words.PARTS)}"
        who = people[rng.choice(words.DEVELOPERS)]
        yield name, who, rng.choice(LISTS), TODAY + timedelta(days=due), rng.choice(BOARDS)


def _customers(rng: Random, people: list[str]) -> Iterable[Cells]:
    """Customers with different names, the latest contact first."""
    names = [f"{first} {last}" for first in words.CUSTOMER_FIRST for last in words.CUSTOMER_LAST]
    ago = sorted(rng.randrange(61) for _ in range(120))
    for name, days in zip(rng.sample(names, 120), ago, strict=True):
        contact = TODAY - timedelta(days=days)
        email = f"{name.lower().replace(' ', '.')}@{rng.choice(words.CUSTOMER_FIRMS)}.example"
        phone = f"555-{rng.randrange(10_000):04d}" if rng.random() < 0.6 else ""
        follow_up = contact + timedelta(days=rng.randrange(7, 40))
        notes = " ".join(rng.sample(words.CONTACTS, rng.randrange(3)))
        who, product, status = people[rng.choice(words.SELLERS)], rng.choice(PRODUCTS), rng.choice(STATUSES)
        yield who, name, email, phone, f"{contact} 23:59:00", product, status, f"{follow_up} 23:59:00", notes


def _visits(rng: Random) -> Iterable[Cells]:
    """Visits of three months, unsorted; some visitors come several times."""
    for _ in range(400):
        day = date(2023, 9, 1) + timedelta(days=rng.randrange(91))
        visitor = f"{rng.randrange(1000, 1350)}"
        seconds = min(600, int(rng.expovariate(1 / 40)) + 1)
        yield day, visitor, rng.randrange(1, 15), seconds, rng.choice(SOURCES), seconds > 30


def _csv(lines: Iterable[Cells]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(lines)
    return text.getvalue()
