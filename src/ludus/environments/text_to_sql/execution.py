"""Compares a candidate query with the gold query by running both. Runs in a child process.

`decide_packed` runs both queries on the row's own data and on generated states of the database, each with its rows
stored in two orders. A state decides only where it determines the gold result. Equal everywhere is equal, different
anywhere is different. `equal` is None where execution cannot tell.
"""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from ludus.environments.text_to_sql.comparing import Expected, Row, contains, difference
from ludus.environments.text_to_sql.database import Database, SqlError
from ludus.environments.text_to_sql.gold import WRITES, Gold, State, kind_of, prepared, states_for
from ludus.environments.text_to_sql.rounding import tolerances
from ludus.environments.text_to_sql.sqltext import (
    SQLITE,
    WORD,
    NotExecutable,
    Token,
    TooLong,
    Undetermined,
    render,
)

_CANDIDATE_STATES = 3
_LONGEST = 50_000
_NEWER = frozenset("concat concat_ws string_agg octet_length if unistr unistr_quote median percentile iif".split())

#: Words of other dialects that stand where a column could stand.
_VALUES = frozenset(
    "current_catalog current_role current_schema current_user localtime session_user user ctid oid tableoid xmax "
    "xmin utc_date utc_time utc_timestamp".split()
)


@dataclass(frozen=True)
class Execution:
    """The verdict: `equal` is None if execution cannot tell. `states` is how many states were compared."""

    equal: bool | None
    reason: str = ""
    states: int = 0


class TriedGold(NamedTuple):
    """Why a gold query cannot be executed and compared, or "" and the query with its states, for other processes."""

    reason: str
    packed: bytes = b""


def try_gold(sql: str, dialect: str, context: str, states: int, extra_columns: bool) -> TriedGold:
    """Prepare a gold query and compare it with itself."""
    gold = prepared(sql, dialect, context, states)
    if isinstance(gold, str):
        return TriedGold(gold)
    execution = _decide(sql, gold, dialect, extra_columns)
    if execution.equal:
        return TriedGold("", pickle.dumps(gold))
    return TriedGold(execution.reason or "the gold query does not give its own result again")


def decide_packed(candidate: str, packed: bytes, dialect: str, extra_columns: bool) -> Execution:
    """Compare a candidate query with a gold query that was tried."""
    return _decide(candidate, _unpacked(packed), dialect, extra_columns)


@lru_cache(maxsize=64)
def _unpacked(packed: bytes) -> Gold:
    gold: Gold = pickle.loads(packed)
    return gold


def _decide(candidate: str, gold: Gold, dialect: str, extra_columns: bool) -> Execution:
    if len(candidate) > _LONGEST:
        return Execution(False, f"the query has more than {_LONGEST} characters")
    try:
        parsed = gold.schema.query(candidate)
        if not parsed:
            return Execution(False, "the answer holds no statement")
        kinds = {kind_of(statement) for statement in parsed}
    except Undetermined as error:
        return Execution(False, f"the query has {error}, whose result is random")
    except TooLong as error:
        return Execution(False, f"the query has {error}")
    except RecursionError:
        return Execution(False, "the query is nested too deeply")
    except NotExecutable as error:
        return Execution(False if dialect == SQLITE else None, f"the query has {error}")
    if kinds - set(WRITES) if gold.writes else (kinds != {"select"} or len(parsed) > 1):
        wanted = "a statement that writes" if gold.writes else "one query"
        return Execution(False, f"the answer is not {wanted}")
    try:
        more = list(states_for(gold, parsed, _CANDIDATE_STATES))
    except (SqlError, ArithmeticError, ValueError, RecursionError, MemoryError):
        more = []  # the gold query needs too much there, or no table holds the candidate's literals
    try:
        if gold.writes:
            return _compare_writes(gold, [*gold.states, *more], [render(statement) for statement in parsed])
        return _compare(gold, [*gold.states, *more], parsed[0], extra_columns)
    except SqlError as error:
        return Execution(_judged_error(error, dialect, parsed), f"the query failed: {error}")


def _compare(gold: Gold, states: list[State], tokens: list[Token], extra_columns: bool) -> Execution:
    pairs: list[tuple[Expected, list[Row]]] = []
    names: list[str] = []
    width = 0
    for state in states:
        for contents, expected in zip(state.orders, state.expected, strict=True):
            database = Database(gold.schema, contents, state.now)
            try:
                result = database.query(render(tokens))
            finally:
                database.close()
            width = len(result.names)
            pairs.append((expected, result.rows))
            names.append(state.name)
    tolerance = tolerances(gold.statements[0], [expected for expected, _ in pairs])
    differing = difference(pairs, width, tolerance=tolerance, extra_columns=extra_columns)
    if differing is None:
        return Execution(True, states=len(states))
    index, how = differing
    if how == "the rows have another order" and not pairs[index][0].certain:
        return Execution(None, "the order that the gold query demands could not be read", len(states))
    return Execution(False, f"on {names[index]}: {how}", len(states))


def _compare_writes(gold: Gold, states: list[State], statements: list[str]) -> Execution:
    for state in states:
        database = Database(gold.schema, state.orders[0], state.now, writable=True)
        try:
            database.write(statements)
            contents = database.contents(gold.schema)
        except SqlError as error:
            if "constraint" in str(error):
                return Execution(False, f"on {state.name}: {error}", len(states))
            raise
        finally:
            database.close()
        for table, rows in (state.written or {}).items():
            if len(rows) != len(contents[table]) or not contains(rows, contents[table]):
                return Execution(False, f"on {state.name}: the table {table} differs afterwards", len(states))
    return Execution(True, states=len(states))


def _judged_error(error: SqlError, dialect: str, parsed: list[list[Token]]) -> bool | None:
    """Whether an error of the candidate makes it wrong; None if the query may be right in its own dialect."""
    if error.kind in ("budget", "refused", "undetermined") or "stack overflow" in str(error):
        return False
    name = str(error).removeprefix("no such function: ").lower()
    if dialect == SQLITE:
        return None if name in _NEWER else False
    if error.kind != "missing":
        return None
    column = str(error).removeprefix("no such column: ").lower()
    return None if column in _VALUES or column in _tables(parsed) else False


def _tables(parsed: list[list[Token]]) -> set[str]:
    """Names that may be a whole row in PostgreSQL, as in `SELECT COUNT(o) FROM orders o`: tables and their aliases."""
    names: set[str] = set()
    for statement in parsed:
        for index, token in enumerate(statement):
            if token.kind == WORD and token.key in ("from", "join"):
                behind = [part for part in statement[index + 1 : index + 4] if part.key != "as"][:2]
                names.update(part.key for part in behind if part.is_name)
    return names
