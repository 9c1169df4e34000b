"""What every desk has: a database of its own, tools that read and change it, and a way to hand a customer over.

A desk is copied from a template in memory, which takes a fraction of a millisecond. Its tables hold some dozens of
rows and every statement is fixed, with the model's words as parameters, so that no call can keep the loop busy.
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

#: How often each record stands in each table.
State = dict[str, Counter[tuple[Any, ...]]]

NAMES = (
    "Ada Brandt, Bela Kovacs, Clara Nunes, Dario Conti, Elif Aydin, Finn Larsen, Grace Okafor, Hugo Moreau, Ines Vidal,"
    " Jonas Weber, Kaja Nowak, Liam Byrne"
).split(", ")


class Refused(Exception):
    """Something that cannot be done, told to whoever asked for it."""


class Desk(Resources):
    """Base of the desks. `belongings` is what the user has at hand for tools of their own."""

    schema: ClassVar[str] = ""
    policy: ClassVar[str] = ""

    def __init__(self, template: sqlite3.Connection, belongings: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self.belongings = belongings or {}
        self.known: str | None = None  # whose identity was established
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

    def one(self, what: str, query: str, *values: Any) -> Record:
        """The record that a query finds, or a refusal that says what is missing."""
        found = self.db.execute(query, values).fetchone()
        if found is None:
            raise Refused(f"there is no {what}")
        return dict(found)

    def do(self, statement: str, *values: Any) -> None:
        """Change something."""
        self.db.execute(statement, values)

    def whoever_is_known(self) -> str:
        """Whose identity was established; nothing is told or changed before."""
        if self.known is None:
            raise Refused("first find out who the customer is")
        return self.known

    def state(self) -> State:
        """Everything in the database, by table, in whatever order it got there; and whose identity was established."""
        tables = [name for (name,) in self.db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        state = {name: Counter(map(tuple, self.db.execute(f"SELECT * FROM {name}"))) for name in tables}
        return state | ({"identity": Counter([(self.known,)])} if self.known is not None else {})


def today_of(world: int) -> date:
    """The day on which everything in a world happens."""
    return date(2025, 1, 7) + timedelta(days=world % 300)


def money(cents: int) -> str:
    """An amount as it is written."""
    return f"{cents // 100}.{cents % 100:02}"


def cents(amount: float) -> int:
    """An amount as it is stored."""
    if not 0 <= amount < 1e9:
        raise Refused(f"{amount:g} is no amount")
    return round(amount * 100)


def odd_price(rng: random.Random, low: int, high: int) -> int:
    """A price in cents that nobody guesses."""
    return rng.randrange(low, high) * 100 + rng.randrange(11, 99)
