"""Figures that are computed once and stored in the index, so that a viewer that is started again shows them at once."""

from __future__ import annotations

import contextlib
import hashlib
import sqlite3
from collections.abc import Callable
from typing import Any

import orjson

from ludus.errors import UserError
from ludus.view.index import RunIndex


def remembered(index: RunIndex, name: str, settings: Any, compute: Callable[[sqlite3.Connection], Any]) -> Any:
    """The figures `name` of what is indexed now, for some settings.

    The figures of a journal that is still being indexed are not stored.
    """
    with index.reading() as database:
        state = _state(database, settings)
        if (content := _stored(database, name, state)) is not None:
            return orjson.loads(content)
        figures, progress = compute(database), index.progress(database)
    if progress["bytes"] and progress["facts"] == progress["bytes"]:
        with contextlib.suppress(UserError), index.writing() as database:
            values = name, state, orjson.dumps(figures)
            database.execute("INSERT OR REPLACE INTO remembered VALUES (?, ?, ?)", values)
    return figures


def is_remembered(index: RunIndex, name: str, settings: Any) -> bool:
    """Whether the figures `name` are stored, so that they need not be computed."""
    with index.reading() as database:
        return _stored(database, name, _state(database, settings)) is not None


def _stored(database: sqlite3.Connection, name: str, state: str) -> bytes | None:
    row = database.execute("SELECT content FROM remembered WHERE name = ? AND state = ?", (name, state)).fetchone()
    return None if row is None else row["content"]


def _state(database: sqlite3.Connection, settings: Any) -> str:
    """A digest that changes when other lines are indexed, or when the settings change."""
    built = database.execute("SELECT id FROM main.built").fetchone()
    journals = [tuple(row) for row in database.execute("SELECT file, identity, at, tail FROM journals ORDER BY file")]
    return hashlib.blake2b(repr((built and built["id"], journals, settings)).encode(), digest_size=16).hexdigest()
