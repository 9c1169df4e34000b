"""The base of all desks: a database for each rollout, tools that read and change it, and a transfer to a human.

The database is copied from a template in memory, which takes a fraction of a millisecond. Its tables have some dozens
of rows and every SQL statement is fixed, with the model's text as parameters, so that no call blocks the event loop.
"""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from collections.abc import Mapping
from datetime import date, timedelta
from typing import Any, ClassVar, Self

from ludus import Resources, tool

Record = dict[str, Any]

#: For each table, how often each record occurs.
State = dict[str, Counter[tuple[Any, ...]]]

NAMES = (
    "Ada Brandt, Bela Kovacs, Clara Nunes, Dario Conti, Elif Aydin, Finn Larsen, Grace Okafor, Hugo Moreau, Ines Vidal,"
    " Jonas Weber, Kaja Nowak, Liam Byrne"
).split(", ")


class Refused(Exception):
    """A tool call that the desk refuses. The caller reads the message."""


class Desk(Resources):
    """Base of the desks. `belongings` are the things that the user's tools find."""

    schema: ClassVar[str] = ""
    policy: ClassVar[str] = ""

    def __init__(self, template: sqlite3.Connection, belongings: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self.belongings = belongings or {}
        self.known: str | None = None  # the identified customer
        self.db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        template.backup(self.db)
        self.db.row_factory = sqlite3.Row

    @classmethod
    def fill(cls, db: sqlite3.Connection, rng: random.Random, today: date) -> None:
        """Write a world into an empty database."""
        raise TypeError(f"{cls.__name__} does not define fill()")

    @classmethod
    def template(cls, world: int) -> sqlite3.Connection:
        """The database that desks of this world start from. The same number gives the same world."""
        db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        db.executescript(f"{cls.schema}; CREATE TABLE transfers (topic TEXT);")
        db.execute("BEGIN")
        cls.fill(db, random.Random(f"{cls.__name__}/{world}"), today_of(world))
        db.execute("COMMIT")
        return db

    async def close(self) -> None:
        self.db.close()

    def fork(self) -> Self:
        """The same desk with a copy of its database."""
        twin = type(self)(self.db, self.belongings)
        twin.known = self.known
        return twin

    @tool
    async def transfer_to_human(self, topic: str) -> Record:
        """Hand the customer over to a colleague. Say so to the customer afterwards.

        Args:
            topic: the topic, as the policy names it
        """
        self.do("INSERT INTO transfers VALUES (?)", topic)
        return {"transferred": True}

    def all(self, query: str, *values: Any) -> list[Record]:
        """Every record that a query finds."""
        return [dict(row) for row in self.db.execute(query, values)]

    def record(self, name: str, query: str, *values: Any) -> Record:
        """The record that a query finds. Raises `Refused` with the name if there is none."""
        record = self.db.execute(query, values).fetchone()
        if record is None:
            raise Refused(f"there is no {name}")
        return dict(record)

    def do(self, statement: str, *values: Any) -> None:
        """Run a statement that changes the database."""
        self.db.execute(statement, values)

    def identified(self) -> str:
        """The identified customer. Raises `Refused` before the customer is identified."""
        if self.known is None:
            raise Refused("first find out who the customer is")
        return self.known

    def state(self) -> State:
        """The records of every table, without their order, and the identified customer."""
        tables = [name for (name,) in self.db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        state = {name: Counter(map(tuple, self.db.execute(f"SELECT * FROM {name}"))) for name in tables}
        return state | ({"identity": Counter([(self.known,)])} if self.known is not None else {})


def today_of(world: int) -> date:
    """Today's date in a world."""
    return date(2025, 1, 7) + timedelta(days=world % 300)


def money(cents: int) -> str:
    """An amount in cents, written with two decimals."""
    return f"{cents // 100}.{cents % 100:02}"


def cents(amount: float) -> int:
    """An amount in cents, as the database stores it."""
    if not 0 <= amount < 1e9:
        raise Refused(f"{amount:g} is no amount")
    return round(amount * 100)


def odd_price(rng: random.Random, low: int, high: int) -> int:
    """A price in cents that is hard to guess."""
    return rng.randrange(low, high) * 100 + rng.randrange(11, 99)
