"""The tables of the index. The index can be thrown away at any time: it is built again from the journals."""

from __future__ import annotations

import sqlite3

from ludus.view.facts import STAGES

#: Raised when the tables or the extraction change, so that older indexes are built again.
VERSION = 2

FACTS = (
    "rollout_id repeat attempt outcome reward passed stop_reason mask stage kind cause turns items input_tokens "
    "cached_tokens output_tokens tool_calls tool_errors started model policy has_tokens parent branch_turn about"
).split() + [f"t_{stage}" for stage in STAGES]

_TABLES = f"""
    CREATE TABLE journals (
        file INTEGER PRIMARY KEY, identity TEXT, facts_at INTEGER, lines INTEGER, text_at INTEGER, tail TEXT
    );
    CREATE TABLE tasks (id INTEGER PRIMARY KEY, environment TEXT, task_id TEXT, about TEXT);
    CREATE UNIQUE INDEX tasks_by_name ON tasks (environment, task_id);
    CREATE TABLE rollouts (
        id INTEGER PRIMARY KEY, file INTEGER, offset INTEGER, length INTEGER, number INTEGER, key INTEGER,
        final INTEGER, task INTEGER, {", ".join(FACTS)}
    );
    CREATE INDEX rollouts_by_key ON rollouts (key);
    CREATE INDEX rollouts_by_task ON rollouts (task, final, outcome, reward, passed);
    CREATE INDEX rollouts_by_place ON rollouts (file, offset);
    CREATE INDEX rollouts_by_outcome ON rollouts (final, outcome, reward, passed);
    CREATE INDEX rollouts_by_failure ON rollouts (stage, kind) WHERE outcome = 'failed';
    CREATE TABLE tools (rollout INTEGER, name TEXT, calls INTEGER, errors INTEGER);
    CREATE INDEX tools_by_name ON tools (name, rollout, calls, errors);
    CREATE TABLE named_values (rollout INTEGER, kind TEXT, name TEXT, value REAL);
    CREATE INDEX values_by_name ON named_values (kind, name, value);
    CREATE TABLE bad_lines (file INTEGER, number INTEGER, why TEXT);
    CREATE TABLE notes (key INTEGER PRIMARY KEY, note TEXT, tags TEXT);
    CREATE VIRTUAL TABLE texts USING fts5 (text, content='', columnsize=0, tokenize="unicode61 remove_diacritics 2");
    PRAGMA user_version = {VERSION};
"""


def prepare(database: sqlite3.Connection) -> bool:
    """Create the tables, anew if they are of another version. Returns whether they were created."""
    if database.execute("PRAGMA user_version").fetchone()[0] == VERSION:
        return False
    clear(database)
    return True


def clear(database: sqlite3.Connection) -> None:
    """Drop all tables and create them empty, within the transaction of the caller."""
    database.execute("DROP TABLE IF EXISTS texts")
    names = database.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    ).fetchall()
    for (name,) in names:
        database.execute(f'DROP TABLE IF EXISTS "{name}"')
    for statement in _TABLES.split(";"):
        database.execute(statement)
