"""The tables of the index: figures in one file, the text for the search in another. Both can be written at once.

The index can be thrown away at any time: it is built again from the journals. A search index belongs to the figures
whose id it has, because it names rollouts by their numbers there.
"""

from __future__ import annotations

import sqlite3
from typing import NamedTuple

from ludus.view.facts import STAGES

FACTS = (
    "rollout_id repeat attempt outcome reward passed stop_reason mask stage kind cause turns items input_tokens "
    "cached_tokens output_tokens tool_calls tool_errors started model policy verifier has_tokens parent branch_turn "
    "about"
).split() + [f"t_{stage}" for stage in STAGES]

_FIGURES = f"""
    CREATE TABLE built (id TEXT);
    INSERT INTO built VALUES (hex(randomblob(16)));
    CREATE TABLE journals (
        file INTEGER PRIMARY KEY, identity TEXT, at INTEGER, lines INTEGER, tail TEXT
    );
    CREATE TABLE tasks (id INTEGER PRIMARY KEY, environment TEXT, task_id TEXT, about TEXT);
    CREATE UNIQUE INDEX tasks_by_name ON tasks (environment, task_id);
    CREATE TABLE rollouts (
        id INTEGER PRIMARY KEY, file INTEGER, offset INTEGER, length INTEGER, number INTEGER, name INTEGER, key INTEGER,
        final INTEGER, task INTEGER, {", ".join(FACTS)}
    );
    CREATE INDEX rollouts_by_name ON rollouts (name);
    CREATE INDEX rollouts_by_task ON rollouts (task, final, outcome, reward, passed);
    CREATE INDEX rollouts_by_place ON rollouts (file, offset);
    CREATE INDEX rollouts_by_outcome ON rollouts (final, outcome, reward, passed);
    CREATE INDEX rollouts_by_failure ON rollouts (stage, kind) WHERE outcome = 'failed';
    CREATE TABLE tools (rollout INTEGER, name TEXT, calls INTEGER, errors INTEGER);
    CREATE INDEX tools_by_name ON tools (name, rollout, calls, errors);
    CREATE TABLE named_values (rollout INTEGER, kind TEXT, name TEXT, value REAL);
    CREATE INDEX values_by_name ON named_values (kind, name, value);
    CREATE TABLE bad_lines (file INTEGER, number INTEGER, why TEXT);
    CREATE TABLE remembered (name TEXT PRIMARY KEY, state TEXT, content BLOB);
    CREATE TABLE notes (key INTEGER PRIMARY KEY, note TEXT, tags TEXT);
"""

_TEXTS = """
    CREATE TABLE built (id TEXT);
    CREATE TABLE progress (file INTEGER PRIMARY KEY, at INTEGER);
    CREATE VIRTUAL TABLE texts USING fts5 (text, content='', columnsize=0, tokenize="unicode61 remove_diacritics 2");
"""

#: Whether the search index (attached as `search`) is that of the figures.
IS_CURRENT = "(SELECT id FROM search.built) = (SELECT id FROM main.built)"


class Schema(NamedTuple):
    """The tables of a file. The version is raised when they or the extraction change: older files are built again.

    No two schemas have the same version, so that no file is taken for the other.
    """

    version: int
    tables: str

    def version_of(self, database: sqlite3.Connection) -> int:
        """The version of the tables in a file; 0 if there are none."""
        return int(database.execute("PRAGMA main.user_version").fetchone()[0])

    def prepare(self, database: sqlite3.Connection) -> bool:
        """Create the tables if they are not there. Returns whether they were created."""
        if self.version_of(database) == self.version:
            return False
        self.clear(database)
        return True

    def clear(self, database: sqlite3.Connection) -> None:
        """Drop all tables and create them empty, within the transaction of the caller."""
        database.execute("DROP TABLE IF EXISTS main.texts")
        names = database.execute(
            "SELECT name FROM main.sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
        ).fetchall()
        for (name,) in names:
            database.execute(f'DROP TABLE IF EXISTS main."{name}"')
        for statement in self.tables.split(";"):
            database.execute(statement)
        database.execute(f"PRAGMA main.user_version = {self.version}")


FIGURES, TEXTS = Schema(6, _FIGURES), Schema(1004, _TEXTS)
