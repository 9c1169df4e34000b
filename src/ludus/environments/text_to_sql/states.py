"""Generated databases on which two different queries show that they differ.

A state is drawn from a seed: the same row always gets the same states. Values come from small pools, so that there are
duplicates, ties and joins that match; the pools hold the values around every literal of the query, so that a filter
selects some rows and rejects others at its border. Columns that may be NULL sometimes are. Every row is accepted by
the schema's own constraints.
"""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

from ludus.environments.text_to_sql.database import Contents, accepts
from ludus.environments.text_to_sql.functions import read_time
from ludus.environments.text_to_sql.literals import Literals
from ludus.environments.text_to_sql.schema import BOOLEAN, BYTES, INTEGER, REAL, STRING, Column, Schema, Table
from ludus.environments.text_to_sql.sqltext import quoted
from ludus.environments.text_to_sql.values import (
    BASE,
    absent,
    border,
    dates,
    is_date,
    near,
    near_now,
    numbers,
    seen_by,
    texts,
)

_TRIES = 12


class Generator:
    """Draws states of a schema. `own` are the rows of the context, whose values are used too."""

    def __init__(self, schema: Schema, literals: Literals, own: Contents) -> None:
        self.schema = schema
        self.literals = literals
        self.own = own
        counts = [value for value in literals.loose if isinstance(value, int) and 0 < value <= 40]
        self._most = max([12, *counts])
        self.order = _parents_first(schema)
        self._unmatched, self._rows_wanted = False, 0

    def now(self, seed: int) -> datetime:
        """The time at which the queries of a state run: a few days after the newest date that the row mentions."""
        texts = [cell for rows in self.own.values() for row in rows for cell in row if isinstance(cell, str)]
        times = [time for text in texts if (time := read_time(text)) is not None and 1990 < time.year < 2100]
        return max(times, default=BASE) + timedelta(days=1 + 9 * (seed % 5), hours=11, minutes=7)

    def draw(self, seed: int, *, unmatched: bool = False, rows: int = 0) -> Contents:
        """The rows of every table in a state.

        `unmatched`: filters with literals select none of them. `rows`: at least so many, with more different values.
        """
        self._unmatched, self._rows_wanted = unmatched, rows
        rng = random.Random(f"text_to_sql/{seed}")
        contents: Contents = {}
        connection = accepts(self.schema, self.now(seed))
        try:
            for name in self.order:
                contents[name] = self._rows(rng, seed, self.schema.tables[name], contents, connection)
            if seed % 3 == 1:
                self._add_twins(rng, contents, connection)
        finally:
            connection.close()
        return contents

    def _rows(
        self, rng: random.Random, seed: int, table: Table, contents: Contents, connection: sqlite3.Connection
    ) -> list[tuple[Any, ...]]:
        parent = any(self._refers(other, table) for other in self.schema.tables.values() if other is not table)
        child = any(self._refers(table, other) for other in self.schema.tables.values() if other is not table)
        size = rng.randint(4, 8) if parent and not child else rng.randint(self._most, 3 * self._most)
        size = max(size, self._rows_wanted)
        pools = {column.name: self._pools(rng, seed, table, column) for column in table.columns}
        nulls = 0.0 if seed % 4 == 0 else 0.12
        rows: list[tuple[Any, ...]] = []
        favourite = rng.random() < 0.6
        for number in range(1, size + 1):
            for _ in range(_TRIES):
                focus = rng.random() < 0.4
                row = tuple(
                    self._cell(rng, table, column, pools[column.name][focus], contents, rows, number, nulls, favourite)
                    for column in table.columns
                )
                if _inserted(connection, table, row):
                    rows.append(row)
                    break
        stored = connection.execute(f"SELECT * FROM {quoted(table.name).text}").fetchall()
        rng.shuffle(stored)
        return stored

    def _refers(self, table: Table, other: Table) -> bool:
        """Whether a table has a foreign key to another one, or a column that is named or joined like its key."""
        keys = {self.literals.group(column.name) for column in other.columns if column.key}
        return any(
            (column.references is not None and column.references[0].lower() == other.name.lower())
            or (not column.key and self.literals.group(column.name) in keys)
            for column in table.columns
        )

    def _add_twins(self, rng: random.Random, contents: Contents, connection: sqlite3.Connection) -> None:
        """Copy a row of each parent table together with its children, so that every aggregate of the two is a tie."""
        twins: dict[str, tuple[Any, Any]] = {}
        for name in self.order:
            table, rows = self.schema.tables[name], contents[name]
            at = next((i for i, column in enumerate(table.columns) if column.key and column.kind == INTEGER), None)
            if at is None or not rows:
                continue
            fresh = max((row[at] for row in rows if isinstance(row[at], int)), default=0)
            parents = [column.references[0].lower() if column.references else "" for column in table.columns]
            place = next((i for i, parent in enumerate(parents) if parent in twins), None)
            if place is None:
                copied = [] if any(parents) else [rng.choice(rows)]
            else:
                copied = [row for row in rows if row[place] == twins[parents[place]][0]]
            for row in copied:
                fresh += 1
                cells = [
                    f"{cell}{fresh}" if column.unique else cell for cell, column in zip(row, table.columns, strict=True)
                ]
                cells[at] = fresh
                if place is None:
                    twins[name] = (row[at], fresh)
                else:
                    cells[place] = twins[parents[place]][1]
                if _inserted(connection, table, cells):
                    rows.append(tuple(cells))
            rng.shuffle(rows)

    def _cell(
        self,
        rng: random.Random,
        table: Table,
        column: Column,
        pool: list[Any],
        contents: Contents,
        rows: list[tuple[Any, ...]],
        number: int,
        nulls: float,
        favourite: bool,
    ) -> Any:
        is_id = column.name.lower().endswith("id") and column.references is None  # a key that is not declared as one
        if column.nullable and not column.key and not is_id and rng.random() < nulls:
            return None
        if column.references is not None:
            parents = self._parents(column, table, contents, rows)
            if not parents:
                return None
            used = parents[: max(1, len(parents) * 2 // 3)]  # some parents stay without children
            return used[0] if favourite and rng.random() < 0.4 else rng.choice(used)
        if (column.key or column.unique) and column.kind == INTEGER:
            return number if not pool or rng.random() < 0.7 else rng.choice(pool)
        if (column.key or column.unique) and column.kind == STRING and rng.random() < 0.7:
            return f"{rng.choice(pool)}{number}"
        if self._rows_wanted and rng.random() < 0.95:
            return pool[number % len(pool)]
        return rng.choice(pool)

    def _parents(self, column: Column, table: Table, contents: Contents, rows: list[tuple[Any, ...]]) -> list[Any]:
        assert column.references is not None
        name, theirs = column.references
        parent = self.schema.tables.get(name.lower())
        if parent is None:
            return []
        parent_rows = rows if parent is table else contents.get(name.lower(), [])
        names = [other.name.lower() for other in parent.columns]
        keys = [other.name.lower() for other in parent.columns if other.key]
        at = names.index(theirs.lower()) if theirs and theirs.lower() in names else names.index((keys or names)[0])
        return [row[at] for row in parent_rows if row[at] is not None]

    def _pools(self, rng: random.Random, seed: int, table: Table, column: Column) -> tuple[list[Any], list[Any]]:
        """The values of a column in a state, few so that they repeat; and those that the query names, if it does.

        Rows made of the second pool alone are found by queries with several conditions.
        """
        pool = self._pool(rng, seed, table, column)
        named = self.literals.of(column.name)
        if self._unmatched and named:
            rejected = absent(rng, column, named, pool, seed % 2 == 0)
            return rejected, rejected
        if column.kind in (INTEGER, REAL, STRING) and not column.choices and not is_date(column, pool):
            pool = pool + seen_by(self.literals.calls, column, self.literals.numbers, pool)
            pool = pool + self._different(column, pool)
        return pool, [value for value in pool if any(near(value, literal) for literal in named)] or pool

    def _different(self, column: Column, pool: list[Any]) -> list[Any]:
        """More values for a state of many rows, so that there are many groups too."""
        more = range(1, self._rows_wanted + 1)
        if column.kind == STRING:
            return [f"{pool[0]}{number}" for number in more] if pool else []
        return [float(number) if column.kind == REAL else number for number in more]

    def _pool(self, rng: random.Random, seed: int, table: Table, column: Column) -> list[Any]:
        group = self.literals.group(column.name)
        alike = [
            (name, index, other_column.name)
            for name, other in self.schema.tables.items()
            for index, other_column in enumerate(other.columns)
            if (other is table and other_column is column) or self.literals.group(other_column.name) == group
        ]
        own = [row[index] for name, index, _ in alike for row in self.own.get(name, []) if row[index] is not None]
        named = [value for name in dict.fromkeys(name for *_, name in alike) for value in self.literals.of(name)]
        if column.choices:
            return column.choices
        if column.kind == BOOLEAN:
            return [0, 1]
        if column.kind == BYTES:
            return own or [b"a", b"b"]
        loose = self.literals.loose
        if is_date(column, own + named):
            days = dates(rng, column, own + named + [value for value in loose if isinstance(value, str)])
            clock = self.literals.uses_clock
            return days + (near_now(rng, column, self.now(seed), self.literals.numbers) if clock else [])
        if column.kind in (INTEGER, REAL):
            return border(rng, seed, column, loose) or numbers(rng, column, own, named, loose)
        ids = [str(number) for number in range(1, 7)] if column.name.lower().endswith("id") and not own else []
        return ids + texts(rng, seed, own, named)


def _inserted(connection: sqlite3.Connection, table: Table, row: Sequence[Any]) -> bool:
    """Whether the schema accepts a row."""
    try:
        connection.execute(f"INSERT INTO {quoted(table.name).text} VALUES ({', '.join('?' * len(row))})", row)
    except (sqlite3.Error, OverflowError, ValueError):
        return False
    return True


def _parents_first(schema: Schema) -> list[str]:
    """The tables in an order in which each follows the tables that it references, as far as possible."""
    order: list[str] = []

    def visit(name: str, path: tuple[str, ...]) -> None:
        if name in order or name in path or name not in schema.tables:
            return
        for column in schema.tables[name].columns:
            if column.references is not None:
                visit(column.references[0].lower(), (*path, name))
        order.append(name)

    for name in schema.tables:
        visit(name, ())
    return order
