"""A database in memory on which a model's SQL may run.

The SQL is hostile. It may read the row's tables and nothing else: no other database, no pragma, no extension, no schema
table, and no write unless the gold query writes too. Its cost is limited in steps of SQLite's machine, in rows, in
columns and in bytes. These counts are the same on every machine, so a busy one changes no reward.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ludus.environments.text_to_sql.functions import register
from ludus.environments.text_to_sql.schema import Schema
from ludus.environments.text_to_sql.sqltext import POSTGRESQL, quoted

Row = tuple[Any, ...]
Contents = dict[str, list[Row]]

MOST_ROWS = 5_000
MOST_BYTES = 2_000_000
MOST_STEPS = 5_000_000
_STEPS_BETWEEN = 10_000
_HEAP = 256 << 20

_LIMITS = {
    sqlite3.SQLITE_LIMIT_LENGTH: 100_000,
    sqlite3.SQLITE_LIMIT_SQL_LENGTH: 100_000,
    sqlite3.SQLITE_LIMIT_COLUMN: 200,
    sqlite3.SQLITE_LIMIT_EXPR_DEPTH: 200,
    sqlite3.SQLITE_LIMIT_COMPOUND_SELECT: 100,
    sqlite3.SQLITE_LIMIT_FUNCTION_ARG: 50,
    sqlite3.SQLITE_LIMIT_ATTACHED: 0,
    sqlite3.SQLITE_LIMIT_LIKE_PATTERN_LENGTH: 200,
    sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER: 0,
    sqlite3.SQLITE_LIMIT_WORKER_THREADS: 0,
}
_READS = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_RECURSIVE}
_WRITES = {sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE}
_HIDDEN = ("sqlite_", "pragma_", "dbstat", "bytecode", "tables_used", "fts", "rtree")

#: Functions whose result does not follow from the data.
UNDETERMINED = frozenset("random randomblob last_insert_rowid changes total_changes timediff".split())
_REFUSED = UNDETERMINED | frozenset("load_extension fts3_tokenizer edit readfile writefile sqlite_log".split())


class SqlError(Exception):
    """SQL that did not give a result. `kind` is `error`, `missing`, `refused`, `undetermined` or `budget`."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


@dataclass(frozen=True)
class Result:
    """The names of a query's columns and its rows in order."""

    names: list[str]
    rows: list[Row]


class Database:
    """One state of a row's tables, in memory.

    database = Database(schema, contents, now)
    result = database.query("SELECT name FROM users")
    """

    def __init__(self, schema: Schema, contents: Contents, now: datetime, *, writable: bool = False) -> None:
        self._writable = writable
        self._denied: tuple[str, str] | None = None
        self._connection = connection = _connect(now)
        connection.execute(f"PRAGMA case_sensitive_like = {int(schema.dialect == POSTGRESQL)}")
        for name, table in schema.tables.items():
            connection.execute(table.create(bare=not writable))
            _fill(connection, table.name, contents.get(name, ()))
        for view in schema.views:
            connection.execute(view)
        for limit, value in _LIMITS.items():
            connection.setlimit(limit, value)
        connection.set_authorizer(self._authorize)

    def query(self, sql: str) -> Result:
        """Run one SELECT. Raises `SqlError`."""
        cursor = self._run(sql)
        try:
            names = [column[0] for column in cursor.description or ()]
            return Result(names, self._fetched(cursor))
        finally:
            cursor.close()

    def write(self, statements: Iterable[str]) -> None:
        """Run statements that write. Raises `SqlError`."""
        for sql in statements:
            cursor = self._run(sql)
            self._fetched(cursor)
            cursor.close()

    def contents(self, schema: Schema) -> Contents:
        """The rows of every table. Raises `SqlError` if there are too many."""
        self._connection.set_authorizer(None)
        names = {key: quoted(table.name).text for key, table in schema.tables.items()}
        return {key: self._fetched(self._connection.execute(f"SELECT * FROM {name}")) for key, name in names.items()}

    def close(self) -> None:
        """Free the memory."""
        self._connection.close()

    def _run(self, sql: str) -> sqlite3.Cursor:
        self._denied = None
        self._steps = 0
        self._connection.set_progress_handler(self._step, _STEPS_BETWEEN)
        return self._guarded(self._connection.execute, sql)  # type: ignore[no-any-return]

    def _fetched(self, cursor: sqlite3.Cursor) -> list[Row]:
        rows: list[Row] = []
        size = 0
        while batch := self._guarded(cursor.fetchmany, 100):
            rows += batch
            size += sum(len(cell) if isinstance(cell, (str, bytes)) else 8 for row in batch for cell in row)
            if len(rows) > MOST_ROWS:
                raise SqlError("budget", f"the result has more than {MOST_ROWS} rows")
            if size > MOST_BYTES:
                raise SqlError("budget", f"the result has more than {MOST_BYTES} bytes")
        return rows

    def _guarded(self, call: Any, *args: Any) -> Any:
        try:
            return call(*args)
        except (sqlite3.Error, sqlite3.Warning, MemoryError, OverflowError, ValueError) as error:
            raise self._error(error) from None

    def _error(self, error: BaseException) -> SqlError:
        text = str(error)[:200]
        if self._denied is not None:
            return SqlError(*self._denied)
        if isinstance(error, MemoryError) or "out of memory" in text:
            return SqlError("budget", "the query needs too much memory")
        if text == "interrupted":
            return SqlError("budget", f"the query takes more than {MOST_STEPS:,} steps")
        if "too big" in text or "too large" in text or "too long" in text or "too complex" in text:
            return SqlError("budget", text)
        missing = text.startswith(("no such table", "no such column"))
        return SqlError("missing" if missing else "error", text)

    def _step(self) -> int:
        self._steps += _STEPS_BETWEEN
        return int(self._steps > MOST_STEPS)

    def _authorize(self, action: int, first: str | None, second: str | None, *_: Any) -> int:
        """Called while a statement is compiled, with what the statement would do."""
        if action in _READS:
            return sqlite3.SQLITE_OK
        if action == sqlite3.SQLITE_READ or (self._writable and action in _WRITES):
            if not (first or "").lower().startswith(_HIDDEN):
                return sqlite3.SQLITE_OK
            self._denied = ("refused", f"the query uses {first!r:.60}")
        elif action == sqlite3.SQLITE_FUNCTION:
            name = (second or "").lower()
            if name not in _REFUSED and not name.startswith("sqlite_"):
                return sqlite3.SQLITE_OK
            kind = "undetermined" if name in UNDETERMINED else "refused"
            self._denied = (kind, f"the query calls {name}()")
        else:
            self._denied = ("refused", "the query does more than read the tables")
        return sqlite3.SQLITE_DENY


class _Connection(sqlite3.Connection):
    """A connection with a second one, whose functions are SQLite's own."""

    plain: sqlite3.Connection

    def close(self) -> None:
        self.plain.close()
        super().close()


def _connect(now: datetime) -> _Connection:
    connection = sqlite3.connect(":memory:", isolation_level=None, factory=_Connection)
    connection.plain = sqlite3.connect(":memory:")
    connection.text_factory = lambda data: data.decode("utf-8", "replace")
    connection.execute(f"PRAGMA hard_heap_limit = {_HEAP}")
    connection.execute("PRAGMA temp_store = MEMORY")
    register(connection, connection.plain, now)
    return connection


def _fill(connection: sqlite3.Connection, table: str, rows: Iterable[Row]) -> None:
    for row in rows:
        connection.execute(f"INSERT INTO {quoted(table).text} VALUES ({', '.join('?' * len(row))})", row)


def own_contents(schema: Schema, now: datetime) -> Contents:
    """The rows that the context itself inserts. Raises `sqlite3.Error` if it cannot."""
    connection = _connect(now)
    try:
        for table in schema.tables.values():
            connection.execute(table.create())
        for insert in schema.inserts:
            connection.execute(insert)
        names = {key: quoted(table.name).text for key, table in schema.tables.items()}
        return {key: connection.execute(f"SELECT * FROM {name}").fetchall() for key, name in names.items()}
    finally:
        connection.close()


def accepts(schema: Schema, now: datetime) -> sqlite3.Connection:
    """An empty database with every constraint, which refuses rows that the schema forbids."""
    connection = _connect(now)
    for table in schema.tables.values():
        connection.execute(table.create())
    return connection
