"""Properties of the comparison, of the generated databases and of the reading of SQL."""

from __future__ import annotations

import random
from contextlib import suppress
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ludus.environments.text_to_sql.comparing import Expected, Row, agrees, contains, difference, same_cell
from ludus.environments.text_to_sql.database import Database, SqlError, accepts
from ludus.environments.text_to_sql.execution import Execution, decide_packed, try_gold
from ludus.environments.text_to_sql.extraction import extract_sql
from ludus.environments.text_to_sql.literals import Literals
from ludus.environments.text_to_sql.ordering import Shape
from ludus.environments.text_to_sql.schema import Schema
from ludus.environments.text_to_sql.sqltext import DIALECTS, NotExecutable, TooLong, render, statements, tokenize
from ludus.environments.text_to_sql.states import Generator

NOW = datetime(2025, 1, 1)
CELLS = st.one_of(st.none(), st.integers(-3, 3), st.sampled_from([0.5, 1.0, 2.25]), st.sampled_from(["", "a", "1"]))
WIDTH = 3
ROWS = st.lists(st.tuples(*[CELLS] * WIDTH), max_size=8)


def decide(candidate: str, gold: str, dialect: str, context: str) -> Execution:
    tried = try_gold(gold, dialect, context, 8, False)
    assert not tried.reason
    return decide_packed(candidate, tried.packed, dialect, False)


def unordered(rows: list[Row]) -> Expected:
    return Expected(WIDTH, [rows], 0, len(rows))


@given(ROWS, st.randoms(use_true_random=False))
def test_any_order_of_the_same_rows_agrees_without_order_by(rows: list[Row], rng: random.Random) -> None:
    shuffled = rng.sample(rows, len(rows))
    assert agrees(unordered(rows), shuffled)
    ordered = Expected(WIDTH, [[row] for row in rows], 0, len(rows))
    same = all(map(same_row, rows, shuffled))
    assert agrees(ordered, shuffled) == same


def same_row(left: Row, right: Row) -> bool:
    return all(map(same_cell, left, right))


@given(ROWS.filter(bool), st.data())
def test_a_row_more_or_less_or_changed_never_agrees(rows: list[Row], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(rows) - 1))
    assert not agrees(unordered(rows), [*rows, rows[at]])
    assert not agrees(unordered(rows), rows[:at] + rows[at + 1 :])
    changed = [*rows[:at], ("other", *rows[at][1:]), *rows[at + 1 :]]
    assert not agrees(unordered(rows), changed)


@given(ROWS.filter(bool), st.permutations(range(WIDTH)))
def test_columns_may_come_in_another_order_but_the_same_in_every_state(rows: list[Row], order: list[int]) -> None:
    moved = [tuple(row[at] for at in order) for row in rows]
    assert difference([(unordered(rows), moved)], WIDTH) is None
    marked = [(f"x{number}", *row[1:]) for number, row in enumerate(rows)]
    as_is, turned = marked, [(row[1], row[0], row[2]) for row in marked]
    pairs = [(unordered(marked), as_is), (unordered(marked), turned)]
    assert difference(pairs, WIDTH) is not None


@given(ROWS, st.integers(0, 4), st.integers(0, 4), st.randoms(use_true_random=False))
def test_a_limit_accepts_any_choice_among_ties_and_nothing_else(
    rows: list[Row], start: int, count: int, rng: random.Random
) -> None:
    start, stop = min(start, len(rows)), min(start + count, len(rows))
    tied = Expected(WIDTH, [rows], start, stop)
    assert agrees(tied, rng.sample(rows, stop - start))
    if stop > start:
        assert not agrees(tied, [("other",) * WIDTH] * (stop - start))


@given(st.lists(st.floats(-1e6, 1e6), max_size=12), st.randoms(use_true_random=False))
def test_sums_that_differ_in_their_last_digits_are_the_same(values: list[float], rng: random.Random) -> None:
    rows = [(value, "x") for value in values]
    noisy = [(value * (1 + 1e-13), "x") for value in rng.sample(values, len(values))]
    assert contains(rows, noisy)


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        (1, 1.0, True),
        (1, "1", False),
        (None, 0, False),
        (None, "", False),
        (None, None, True),
        (0.1 + 0.2, 0.3, True),
        (b"a", "a", False),
        ("2024-01-01", "2024-01-01 00:00:00", True),
        ("2024-01-01", "2024-01-01 00:00:01", False),
        (10**400, 1.5, False),
        (float("inf"), float("inf"), True),
    ],
)
def test_cells_are_compared_by_value_and_never_across_kinds(left: Any, right: Any, same: bool) -> None:
    assert same_cell(left, right) is same
    assert same_cell(right, left) is same


SCHEMAS = [
    "CREATE TABLE a (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE,"
    " kind TEXT CHECK (kind IN ('x', 'y')), size REAL);"
    "CREATE TABLE b (id INTEGER PRIMARY KEY, a_id INTEGER NOT NULL REFERENCES a(id),"
    " day TEXT, n INTEGER CHECK (n >= 0));"
    "CREATE TABLE c (a_id INTEGER REFERENCES a(id), b_id INTEGER REFERENCES b(id), PRIMARY KEY (a_id, b_id));",
    "CREATE TABLE t (x INTEGER, y TEXT, z TEXT, UNIQUE (x, y));",
    "CREATE TABLE p (code TEXT PRIMARY KEY, boss TEXT REFERENCES p(code), pay REAL NOT NULL);",
]
QUERY = "SELECT name FROM a WHERE size > 10 AND kind = 'x' AND day >= '2024-01-01'"


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(SCHEMAS), st.integers(0, 10_000))
def test_generated_states_keep_every_rule_of_the_schema(context: str, seed: int) -> None:
    schema = Schema.of(context, "sqlite")
    generator = Generator(schema, Literals(tokenize(QUERY), schema.tokens), {})
    drawn = generator.draw(seed)
    assert drawn == Generator(schema, Literals(tokenize(QUERY), schema.tokens), {}).draw(seed)
    connection = accepts(schema, NOW)
    for name, rows in drawn.items():
        assert rows
        for row in rows:
            connection.execute(f"INSERT INTO {name} VALUES ({', '.join('?' * len(row))})", row)
    connection.close()
    for name, table in schema.tables.items():
        for at, column in enumerate(table.columns):
            if column.references is not None:
                parent = drawn[column.references[0].lower()]
                assert {row[at] for row in drawn[name]} - {None} <= {row[0] for row in parent}


def test_states_have_nulls_duplicates_and_values_on_both_sides_of_each_literal() -> None:
    schema = Schema.of(SCHEMAS[0], "sqlite")
    generator = Generator(schema, Literals(tokenize(QUERY), schema.tokens), {})
    states = [generator.draw(seed) for seed in range(12)]
    sizes = [row[3] for state in states for row in state["a"]]
    assert None in sizes
    assert {True, False} == {size > 10 for size in sizes if size is not None}
    assert 10 in sizes
    kinds = [row[2] for state in states for row in state["a"]]
    assert set(kinds) <= {"x", "y", None}
    assert any(len({row[3] for row in state["a"]}) < len(state["a"]) for state in states)
    assert any({row[0] for row in state["a"]} - {row[1] for row in state["b"]} for state in states)


STAFF = "CREATE TABLE emp (id INT, name VARCHAR(50), dept VARCHAR(50), pay DECIMAL(10,2), boss INT);"


@pytest.mark.parametrize(
    ("gold", "other"),
    [
        ("SELECT SUM(pay) FROM emp WHERE dept = 'IT'", "SELECT COALESCE(SUM(pay), 0) FROM emp WHERE dept = 'IT'"),
        ("SELECT COUNT(*) FROM emp WHERE pay > 5000 GROUP BY dept = 'x'", "SELECT COUNT(*) FROM emp WHERE pay > 5000"),
        ("SELECT pay FROM emp WHERE id = 3 GROUP BY id", "SELECT MAX(pay) FROM emp WHERE id = 3"),
        ("SELECT ABS(boss) FROM emp", "SELECT boss FROM emp"),
        ("SELECT boss FROM emp", "SELECT ABS(boss) FROM emp"),
        ("SELECT TRIM(name) FROM emp", "SELECT name FROM emp"),
        ("SELECT LENGTH(name) FROM emp", "SELECT LENGTH(TRIM(name)) FROM emp"),
        ("SELECT substr(name, 1, 10) FROM emp", "SELECT name FROM emp"),
        ("SELECT name FROM emp", "SELECT substr(name, 1, 50) FROM emp"),
        ("SELECT name FROM emp WHERE id % 7 = 0", "SELECT name FROM emp WHERE id = 7 OR id = 0"),
        ("SELECT name FROM emp ORDER BY pay, id LIMIT 50", "SELECT name FROM emp ORDER BY pay, id"),
        ("SELECT name FROM emp", "SELECT name FROM emp LIMIT 100"),
        ("SELECT dept, SUM(pay) FROM emp GROUP BY 1", "SELECT dept, SUM(pay) FROM emp GROUP BY 1 LIMIT 60"),
        ("SELECT boss * 0.0001 FROM emp", "SELECT ROUND(0.0, 2) FROM emp"),
    ],
)
def test_a_query_that_differs_on_unusual_data_is_found_to_differ(gold: str, other: str) -> None:
    assert decide(gold, gold, "sqlite", STAFF).equal is True
    assert decide(other, gold, "sqlite", STAFF).equal is False


def test_a_query_that_ignores_case_differs_from_one_that_does_not() -> None:
    """A trained model wrote LIKE for =, and was paid for it where two conditions had to meet in one owner."""
    context = (
        "CREATE TABLE pilots (pilot_id INTEGER PRIMARY KEY, callsign TEXT NOT NULL, base TEXT NOT NULL);"
        "CREATE TABLE flights (flight_id INTEGER PRIMARY KEY, pilot_id INTEGER NOT NULL REFERENCES pilots(pilot_id), "
        "fuel INTEGER NOT NULL, flown_on TEXT NOT NULL, incident TEXT);"
    )
    gold = (
        "SELECT o.callsign FROM pilots o WHERE EXISTS (SELECT 1 FROM flights t WHERE t.pilot_id = o.pilot_id "
        "AND t.incident = 'ice') AND EXISTS (SELECT 1 FROM flights u WHERE u.pilot_id = o.pilot_id "
        "AND u.incident = 'bird')"
    )
    wrong = (
        "SELECT callsign FROM pilots WHERE pilot_id IN (SELECT pilot_id FROM flights WHERE incident LIKE 'ice' "
        "INTERSECT SELECT pilot_id FROM flights WHERE incident LIKE 'bird')"
    )
    assert decide(gold, gold, "sqlite", context).equal is True
    assert decide(wrong.replace("LIKE", "="), gold, "sqlite", context).equal is True
    assert decide(wrong, gold, "sqlite", context).equal is False


@given(st.text(max_size=200), st.sampled_from(sorted(set(DIALECTS.values()))))
def test_any_text_is_tokenized_or_refused(text: str, dialect: str) -> None:
    try:
        tokens = tokenize(text, dialect)
    except NotExecutable:
        return
    if dialect == "sqlite":
        assert tokenize(render(tokens)) == tokens
    Shape.of(tokens)
    statements(tokens)


@pytest.mark.parametrize("end", ["LIMIT %s", "LIMIT 3 OFFSET %s", "ORDER BY %s"])
def test_a_number_that_is_too_long_for_python_is_refused_by_name(end: str) -> None:
    with pytest.raises(TooLong, match="a number of 5,000 characters"):
        tokenize("SELECT a FROM t " + end % ("9" * 5000))


@given(st.text(max_size=300))
def test_any_answer_is_read(text: str) -> None:
    for compat in (False, True):
        sql = extract_sql(text, compat=compat)
        assert sql is None or (sql.endswith(";") and len(sql) > 1)


@settings(max_examples=200, deadline=None)
@given(st.text(alphabet="SELECT FROMaid*(),;'\"`-/1<>=|&[]:.%_\\\n", max_size=80), st.sampled_from(sorted(DIALECTS)))
def test_any_query_gives_rows_or_a_known_error(text: str, dialect: str) -> None:
    schema = Schema.of(SCHEMAS[0], "sqlite")
    schema.dialect = DIALECTS[dialect]
    try:
        queries = schema.query(f"SELECT {text}")
    except NotExecutable:
        return
    database = Database(schema, {}, NOW)
    try:
        for query in queries:
            with suppress(SqlError):  # any other error fails the test
                database.query(render(query))
    finally:
        database.close()


def test_the_sandbox_leaves_nothing_behind(tmp_path: Any) -> None:
    schema = Schema.of(SCHEMAS[1], "sqlite")
    target = tmp_path / "stolen.db"
    database = Database(schema, {"t": [(1, "a", "b")]}, NOW)
    for sql in (f"ATTACH '{target}' AS s", f"VACUUM INTO '{target}'", "DELETE FROM t", "CREATE TABLE u (v)"):
        with pytest.raises(SqlError):
            database.query(sql)
    assert not target.exists()
    assert database.query("SELECT * FROM t").rows == [(1, "a", "b")]
    database.close()
