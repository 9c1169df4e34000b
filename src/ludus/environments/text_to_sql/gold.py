"""A gold query with the states of its database that determine its result.

`prepared` builds the tables, runs the gold query on the row's own data and on generated states, and keeps the states
that can decide about another query. Runs in a child process.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import groupby
from typing import Any

from ludus.environments.text_to_sql.comparing import Expected, Row, agrees, contains
from ludus.environments.text_to_sql.database import Contents, Database, Result, SqlError, own_contents
from ludus.environments.text_to_sql.literals import Literals
from ludus.environments.text_to_sql.mutants import mutants
from ludus.environments.text_to_sql.ordering import Shape, rivals
from ludus.environments.text_to_sql.schema import Schema
from ludus.environments.text_to_sql.sqltext import (
    MYSQL,
    WORD,
    NotExecutable,
    Token,
    depths,
    render,
)
from ludus.environments.text_to_sql.states import Generator

_DEFAULT_NOW = datetime(2025, 3, 14, 11, 7)
_TRIES_PER_STATE = 4
WRITES = ("insert", "update", "delete")


@dataclass(frozen=True)
class State:
    """A filled database that determines the gold result. `orders` holds the same rows stored in other orders."""

    name: str
    orders: list[Contents]
    now: datetime
    expected: list[Expected] = field(default_factory=list)
    written: Contents | None = None
    unmatched: bool = False  #: whether filters of the query select nothing on purpose


@dataclass(frozen=True)
class Gold:
    """A gold query that can run, with the states that it was run on."""

    schema: Schema
    statements: list[list[Token]]
    shape: Shape | None
    own: Contents
    states: list[State]

    @property
    def writes(self) -> bool:
        return self.shape is None


def prepared(sql: str, dialect: str, context: str, states: int) -> Gold | str:
    """The gold query with the states that determine its result, or why it cannot decide."""
    try:
        schema = Schema.of(context, dialect)
        statements = schema.query(sql)
        kinds = {kind_of(statement) for statement in statements}
        if kinds == {"select"} and len(statements) == 1:
            shape: Shape | None = Shape.of(statements[0], folds_case=dialect == MYSQL)
        elif kinds and kinds <= set(WRITES):
            shape = None
            if {"cascade", "trigger"} & {token.key for token in schema.tokens}:
                raise NotExecutable("writes that cascade")
        else:
            raise NotExecutable("a statement that is neither a query nor a write")
        own = own_contents(schema, _DEFAULT_NOW)
        chosen = list(_states(schema, statements, shape, own, states, []))
    except NotExecutable as error:
        return f"the gold query or its context has {error}"
    except (SqlError, sqlite3.Error, MemoryError, ArithmeticError, ValueError, RecursionError) as error:
        return f"the gold query or its context cannot run on SQLite: {error!s:.200}"
    if not _tells(chosen):
        return "the gold query selects too little on the generated databases"
    return Gold(schema, statements, shape, own, chosen)


def kind_of(tokens: list[Token]) -> str:
    """The word that says what a statement does: the first one outside of brackets that does something."""
    for token, depth in zip(tokens, depths(tokens), strict=True):
        if depth == 0 and token.kind == WORD and token.key != "with":
            if token.key in ("select", "values", *WRITES):
                return "select" if token.key == "values" else token.key
            if tokens[0].key != "with":
                break
    return tokens[0].key


def states_for(gold: Gold, candidate: list[list[Token]], wanted: int) -> Iterator[State]:
    """Further states of a gold query, with values around the literals of a candidate."""
    yield from _states(gold.schema, gold.statements, gold.shape, gold.own, wanted, candidate)


def _states(
    schema: Schema,
    statements: list[list[Token]],
    shape: Shape | None,
    own: Contents,
    wanted: int,
    candidate: list[list[Token]],
) -> Iterator[State]:
    """States that determine the gold result: the row's own data, then generated ones. Raises `SqlError`.

    There are as many as wanted, and more if these tell a mutant from the gold query. With a candidate, the literals of
    its query are used too, and the row's own data is left out.
    """
    tokens = [token for statement in (*statements, *candidate) for token in statement]
    generator = Generator(schema, Literals(tokens, schema.tokens), own)
    if any(own.values()) and not candidate:
        yield from _determined(schema, statements, shape, "the row's own data", own, generator.now(0))
    alive = mutants(statements[0]) if shape is not None and not candidate else []
    for state in _special(schema, statements, shape, generator, candidate):
        alive = _alike(schema, state, alive)
        yield state
    count = 0
    first = 1000 if candidate else 1
    for seed in range(first, first + wanted * _TRIES_PER_STATE):
        if count >= wanted and not alive:
            return
        drawn = generator.draw(seed)
        for state in _determined(schema, statements, shape, f"generated data {seed}", drawn, generator.now(seed)):
            still_alive = _alike(schema, state, alive)
            if count < wanted or len(still_alive) < len(alive):
                alive = still_alive
                count += 1
                yield state


def _special(
    schema: Schema,
    statements: list[list[Token]],
    shape: Shape | None,
    generator: Generator,
    candidate: list[list[Token]],
) -> Iterator[State]:
    """At most three states of a query: two in which filters select nothing, one with more rows than its LIMIT.

    With a candidate, only states that the gold query alone does not need. A state that needs too much is left out.
    """
    wanted = generator.literals
    known = Literals([token for statement in statements for token in statement], []) if candidate else None
    drawn: list[tuple[str, dict[str, Any]]] = []
    filters = any(wanted.of(column.name) for table in schema.tables.values() for column in table.columns)
    if shape is not None and filters and wanted.aggregates and not (known and known.aggregates):
        drawn += [(f"generated data without a match {number}", {"unmatched": True}) for number in (1, 2)]
    if wanted.rows_wanted > (known.rows_wanted if known else 0):
        drawn.append(("generated data with many rows", {"rows": wanted.rows_wanted}))
    for seed, (name, how) in enumerate(drawn, start=500):
        contents = generator.draw(seed, **how)
        try:
            determined = list(_determined(schema, statements, shape, name, contents, generator.now(seed)))
        except SqlError:
            continue
        yield from (replace(state, unmatched="unmatched" in how) for state in determined)


def _alike(schema: Schema, state: State, queries: list[str]) -> list[str]:
    """The queries that a state does not tell from the gold query. Those that cannot run are left out."""
    alike = []
    database = Database(schema, state.orders[0], state.now)
    for sql in queries:
        try:
            rows = database.query(sql).rows
            alike += [sql] if agrees(state.expected[0], rows) else []
        except (SqlError, ValueError):
            continue
    database.close()
    return alike


def _determined(
    schema: Schema, statements: list[list[Token]], shape: Shape | None, name: str, contents: Contents, now: datetime
) -> Iterator[State]:
    """The state, if the gold result follows from it."""
    if shape is None:
        database = Database(schema, contents, now, writable=True)
        try:
            database.write(map(render, statements))
            yield State(name, [contents], now, written=database.contents(schema))
        except SqlError as error:
            if "constraint" not in str(error):
                raise
        finally:
            database.close()
        return
    orders = [contents, {table: rows[::-1] for table, rows in contents.items()}]
    results = [_expected(Database(schema, order, now), statements[0], shape) for order in orders]
    if None not in results and _same(*results):  # type: ignore[arg-type]
        yield State(name, orders, now, expected=[result for result in results if result is not None])


def _expected(database: Database, tokens: list[Token], shape: Shape) -> Expected | None:
    """The gold result with its ties, None if an inner tie decides about it."""
    try:
        sql = render(tokens)
        result = database.query(sql)
        expected = _with_ties(database, shape, result)
        for rival in rivals(tokens):
            try:
                if not agrees(expected, database.query(rival).rows):
                    return None
            except SqlError:
                continue
        return expected
    finally:
        database.close()


def _with_ties(database: Database, shape: Shape, result: Result) -> Expected:
    width, rows = len(result.names), result.rows
    strict = Expected(width, [[row] for row in rows], 0, len(rows), certain=False)
    if not shape.known:
        return strict
    if not shape.ordered:
        full = database.query(shape.unlimited).rows if shape.limit is not None else rows
        return _window(width, [full], shape)
    assert shape.keyed is not None
    try:
        keyed = database.query(shape.keyed).rows
    except SqlError:
        return strict
    full = [row[:width] for row in keyed]
    window = _window(width, [full], shape)
    if full[window.start : window.stop] != rows or any(place >= width for place in shape.places):
        return strict

    def key(row: Row) -> list[Any]:
        cells = [*(row[place] for place in shape.places), *row[width:]]
        return [_sort_key(cell, shape.folds_case) for cell in cells]

    groups = [[row[:width] for row in group] for _, group in groupby(keyed, key)]
    return _window(width, groups, shape)


def _sort_key(cell: Any, folds_case: bool) -> Any:
    if isinstance(cell, float):
        return float(f"{cell:.9g}")
    return cell.casefold() if folds_case and isinstance(cell, str) else cell


def _window(width: int, groups: list[list[Row]], shape: Shape) -> Expected:
    total = sum(map(len, groups))
    start = min(shape.offset, total)
    stop = total if shape.limit is None else min(start + shape.limit, total)
    return Expected(width, groups, start, stop)


def _same(first: Expected, second: Expected) -> bool:
    """Whether two gold results on the same rows in other orders are the same."""
    if not first.certain:
        return first.groups == second.groups
    return len(first.groups) == len(second.groups) and all(
        len(left) == len(right) and contains(left, right)
        for left, right in zip(first.groups, second.groups, strict=True)
    )


def _tells(states: list[State]) -> bool:
    """Whether there are two results with rows that differ; otherwise a constant would pass."""
    if any(state.written is not None for state in states):
        return any(
            len(state.orders[0][table]) != len(rows) or not contains(state.orders[0][table], rows)
            for state in states
            for table, rows in (state.written or {}).items()
        )
    results = {repr(state.expected[0].groups) for state in states if len(state.expected[0]) and not state.unmatched}
    return len(results) > 1
