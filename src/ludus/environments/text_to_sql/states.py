"""Generated databases on which two different queries show that they differ.

A state is drawn from a seed: the same row always gets the same states. Values come from small pools, so that there are
duplicates, ties and joins that match; the pools hold the values around every literal of the query, so that a filter
selects some rows and rejects others at its border. Columns that may be NULL sometimes are. Every row is accepted by
the schema's own constraints.
"""

from __future__ import annotations

import random
import re
import sqlite3
from datetime import datetime, timedelta
from typing import Any

from ludus.environments.text_to_sql.database import Contents, accepts
from ludus.environments.text_to_sql.functions import read_time, write_time
from ludus.environments.text_to_sql.schema import (
    BOOLEAN,
    BYTES,
    DATE,
    DATETIME,
    INTEGER,
    REAL,
    STRING,
    TIME,
    Column,
    Schema,
    Table,
)
from ludus.environments.text_to_sql.sqltext import NUMBER, SIGN, TEXT, WORD, Token, quoted

_WORDS = ("alpha", "beta", "gamma", "delta", "epsilon", "omega")
_TRIES = 12
_COMPARES = frozenset("= == <> != < > <= >= <=>".split())
_YEAR = re.compile(r"(?:19|20)\d\d")
_BETWEEN = ("and", "or", "in", "not", "like", "between", "is", "ilike", "match")
_BEFORE_OTHERS = ("limit", "offset", "interval", "having", "then", "else", "values")
_BASE = datetime(2025, 3, 14)


class Literals:
    """The literals of SQL by the column that they are compared with, and the columns that are joined.

    `of(name)` are the literals for a column; `loose` are those of the query that belong to no column. `checks` are
    statements that create tables, whose CHECK constraints name values too.
    """

    def __init__(self, tokens: list[Token], checks: list[Token]) -> None:
        self._by_column: dict[str, list[Any]] = {}
        self.loose: list[Any] = []
        self._same: dict[str, str] = {}
        self._read(checks)
        self.loose = []
        self._read(tokens)

    def _read(self, tokens: list[Token]) -> None:
        column = ""
        for index, token in enumerate(tokens):
            if token.kind in (TEXT, NUMBER):
                value = _value(token)
                (self._by_column.setdefault(column, []) if column else self.loose).append(value)
            elif token.is_name and not _is_word(token, *_BETWEEN):
                called = index + 1 < len(tokens) and tokens[index + 1].text == "(" and token.kind == WORD
                column = "" if called or _is_word(token, *_BEFORE_OTHERS) else token.key
            if token.kind == SIGN and token.text in _COMPARES:
                self._join(tokens, index)

    def of(self, name: str) -> list[Any]:
        """The literals that a column is compared with."""
        return self._by_column.get(name.lower(), [])

    def group(self, name: str) -> str:
        """One name for all columns that are joined with each other."""
        name = name.lower()
        while self._same.get(name, name) != name:
            name = self._same[name]
        return name

    def _join(self, tokens: list[Token], index: int) -> None:
        if index == 0 or index + 1 >= len(tokens) or not tokens[index - 1].is_name or not tokens[index + 1].is_name:
            return
        right = index + 3 if index + 3 < len(tokens) and tokens[index + 2].text == "." else index + 1
        first, second = self.group(tokens[index - 1].key), self.group(tokens[right].key)
        if first != second:
            self._same[first] = second


def _is_word(token: Token, *words: str) -> bool:
    return token.kind == WORD and token.key in words


def _value(token: Token) -> Any:
    if token.kind == TEXT:
        return token.value()
    if token.text.startswith("0x"):
        return int(token.text, 16)
    return float(token.text) if any(each in token.text for each in ".eE") else int(token.text)


class Generator:
    """Draws states of a schema. `own` are the rows of the context, whose values are used too."""

    def __init__(self, schema: Schema, literals: Literals, own: Contents) -> None:
        self.schema = schema
        self.literals = literals
        self.own = own
        counts = [value for value in literals.loose if isinstance(value, int) and 0 < value <= 40]
        self._most = max([12, *counts])
        self.order = _parents_first(schema)

    def now(self, seed: int) -> datetime:
        """The time at which the queries of a state run: a few days after the newest date that the row mentions."""
        texts = [cell for rows in self.own.values() for row in rows for cell in row if isinstance(cell, str)]
        times = [time for text in texts if (time := read_time(text)) is not None and 1990 < time.year < 2100]
        return max(times, default=_BASE) + timedelta(days=1 + 9 * (seed % 5), hours=11, minutes=7)

    def draw(self, seed: int) -> Contents:
        """The rows of every table in a state."""
        rng = random.Random(f"text_to_sql/{seed}")
        contents: Contents = {}
        connection = accepts(self.schema, self.now(seed))
        try:
            for name in self.order:
                contents[name] = self._rows(rng, seed, self.schema.tables[name], contents, connection)
        finally:
            connection.close()
        return contents

    def _rows(
        self, rng: random.Random, seed: int, table: Table, contents: Contents, connection: sqlite3.Connection
    ) -> list[tuple[Any, ...]]:
        depth = any(column.references for column in table.columns) or self._refers(table)
        size = rng.randint(self._most, 3 * self._most) if depth else rng.randint(4, 8)
        pools = {column.name: self._pools(rng, seed, table, column) for column in table.columns}
        nulls = 0.0 if seed % 4 == 0 else 0.12
        rows: list[tuple[Any, ...]] = []
        favourite = rng.random() < 0.6
        marks = ", ".join("?" * len(table.columns))
        for number in range(1, size + 1):
            for _ in range(_TRIES):
                focus = rng.random() < 0.4
                row = tuple(
                    self._cell(rng, table, column, pools[column.name][focus], contents, rows, number, nulls, favourite)
                    for column in table.columns
                )
                try:
                    connection.execute(f"INSERT INTO {quoted(table.name).text} VALUES ({marks})", row)
                except (sqlite3.IntegrityError, sqlite3.OperationalError):
                    continue
                rows.append(row)
                break
        stored = connection.execute(f"SELECT * FROM {quoted(table.name).text}").fetchall()
        rng.shuffle(stored)
        return stored

    def _refers(self, table: Table) -> bool:
        """Whether a column has the name of another table's key, or is joined."""
        others = [other for other in self.schema.tables.values() if other is not table]
        keys = {self.literals.group(column.name) for other in others for column in other.columns if column.key}
        return any(self.literals.group(column.name) in keys for column in table.columns if not column.key)

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
        if column.nullable and not column.key and rng.random() < nulls:
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
        return rng.choice(pool)

    def _parents(self, column: Column, table: Table, contents: Contents, rows: list[tuple[Any, ...]]) -> list[Any]:
        assert column.references is not None
        name, theirs = column.references
        parent = self.schema.tables.get(name.lower())
        if parent is None:
            return []
        given = rows if parent is table else contents.get(name.lower(), [])
        names = [each.name.lower() for each in parent.columns]
        keys = [each.name.lower() for each in parent.columns if each.key]
        at = names.index(theirs.lower()) if theirs and theirs.lower() in names else names.index((keys or names)[0])
        return [row[at] for row in given if row[at] is not None]

    def _pools(self, rng: random.Random, seed: int, table: Table, column: Column) -> tuple[list[Any], list[Any]]:
        """The values of a column in a state, few so that they repeat; and those that the query names, if it does.

        Rows made of the second pool alone are found by queries with several conditions.
        """
        pool = self._pool(rng, seed, table, column)
        named = self.literals.of(column.name)
        return pool, [value for value in pool if any(_near(value, each) for each in named)] or pool

    def _pool(self, rng: random.Random, seed: int, table: Table, column: Column) -> list[Any]:
        group = self.literals.group(column.name)
        alike = [
            (name, index, each.name)
            for name, other in self.schema.tables.items()
            for index, each in enumerate(other.columns)
            if (other is table and each is column) or self.literals.group(each.name) == group
        ]
        own = [row[index] for name, index, _ in alike for row in self.own.get(name, []) if row[index] is not None]
        given = [value for name in dict.fromkeys(name for *_, name in alike) for value in self.literals.of(name)]
        if column.choices:
            return column.choices
        if column.kind == BOOLEAN:
            return [0, 1]
        if column.kind == BYTES:
            return own or [b"a", b"b"]
        if _is_date(column, own + given):
            return _dates(rng, column, own + given + [each for each in self.literals.loose if isinstance(each, str)])
        if column.kind in (INTEGER, REAL):
            return _border(rng, seed, column, self.literals.loose) or _numbers(
                rng, column, own, given, self.literals.loose
            )
        ids = [str(number) for number in range(1, 7)] if column.name.lower().endswith("id") and not own else []
        return ids + _texts(rng, seed, own, given)


def _near(value: Any, literal: Any) -> bool:
    """Whether a value was made of a literal."""
    if isinstance(value, (int, float)) and isinstance(literal, (int, float)):
        return abs(value - literal) <= 1
    return str(literal).replace("%", "").replace("_", "x")[:10] in str(value)


def _is_date(column: Column, values: list[Any]) -> bool:
    if column.kind in (DATE, DATETIME, TIME):
        return True
    texts = [value for value in values if isinstance(value, str)]
    if column.kind != STRING:
        return False
    if texts:
        return sum(read_time(text) is not None and len(text) >= 10 for text in texts) * 2 > len(texts)
    return column.name.lower().endswith(("date", "_at", "_on", "timestamp"))


def _dates(rng: random.Random, column: Column, values: list[Any]) -> list[Any]:
    """Days at, before and after the given ones, and some months around. Times of day are never midnight."""
    given = [time for value in values if (time := read_time(value)) is not None]
    years = [int(value) for value in values if isinstance(value, int) and 1900 < value < 2100]
    given += [datetime(year, month, 1) for year in years for month in (1, 12)]
    given += [datetime(int(value), 6, 1) for value in values if isinstance(value, str) and _YEAR.fullmatch(value)]
    given = rng.sample(given, min(len(given), 12)) or [_BASE]
    days = [time + timedelta(days=days) for time in given for days in (0, rng.choice((-1, 1)), rng.randint(-400, 400))]
    if column.kind == TIME:
        return [f"{rng.randint(0, 23):02}:{rng.choice((0, 15, 30)):02}:00" for _ in range(6)]
    with_time = column.kind == DATETIME or (column.kind == STRING and any(len(str(value)) > 10 for value in values))
    if not with_time:
        return [day.strftime("%Y-%m-%d") for day in days]
    return [
        write_time(day.replace(hour=rng.randint(1, 23), minute=rng.choice((0, 30)), second=rng.randint(1, 59)))
        for day in days
    ]


def _border(rng: random.Random, seed: int, column: Column, loose: list[Any]) -> list[Any]:
    """In every other state some columns hold one value, of which a few add up to a literal: `HAVING SUM(x) > 500`."""
    literals = [value for value in loose if isinstance(value, (int, float)) and value > 4]
    if seed % 2 or not literals or column.key or column.name.lower().endswith("id") or rng.random() < 0.3:
        return []
    value = rng.choice(literals) / rng.randint(1, 6)
    if column.kind == INTEGER and value != int(value):
        return []
    return [value if column.kind == REAL else int(value)]


def _numbers(rng: random.Random, column: Column, own: list[Any], given: list[Any], loose: list[Any]) -> list[Any]:
    numeric = [value for value in given if isinstance(value, (int, float))]
    name = column.name.lower()
    if name.endswith("id") or column.key:
        return [value for value in numeric if isinstance(value, int)] + list(range(1, 8))
    if "year" in name:
        years = [value for value in own + numeric if isinstance(value, int)] or [2020, 2022]
        return [value + shift for value in years[:8] for shift in (0, rng.choice((-1, 1)))]
    other = [value for value in loose if isinstance(value, (int, float))]
    base = [*numeric, *numeric, *rng.sample(own, min(3, len(own))), *other]
    base = [value for value in base if isinstance(value, (int, float))]
    step = 0.5 if column.kind == REAL else 1
    around = [value + shift for value in base for shift in (0, rng.choice((-step, step)))]
    wide = [rng.randint(0, 12), rng.randint(1, 100), rng.randint(1, 1000)]
    values = around + wide
    if column.kind == REAL:
        return [round(float(value), 2) for value in values] + [round(rng.uniform(0, 500), 2) for _ in range(3)]
    return [int(value) for value in values]


def _texts(rng: random.Random, seed: int, own: list[Any], given: list[Any]) -> list[Any]:
    texts = [str(value) for value in given]
    found: list[Any] = []
    for text in texts:
        plain = text.replace("%", "").replace("_", "x")
        found.append(plain)
        if "%" in text or "_" in text:
            found.append(text.replace("%", "zz").replace("_", "x"))
            found.append(f"q{plain}q")
        if seed % 3 == 2 and plain.swapcase() != plain:
            found.append(plain.swapcase())
    found += rng.sample(own, min(4, len(own)))
    found += rng.sample(_WORDS, 2 if found else 4)
    if seed % 3 == 1:
        found.append("")
    return found


def _parents_first(schema: Schema) -> list[str]:
    """The tables, each behind those that it references, as far as that is possible."""
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
