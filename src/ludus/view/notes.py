"""A person's notes about rollouts: a text and tags, as lines of `notes.jsonl` beside the run.

The journals of a run are never written. The last line about a rollout counts. If the run's folder is read-only, the
notes are stored beside the index.
"""

from __future__ import annotations

import os
import sqlite3
from datetime import UTC, datetime
from pathlib import Path

import orjson

from ludus.errors import UserError
from ludus.runtime.regular_files import read_regular, regular_descriptor

#: The longest note, the longest tag, and the most tags of a rollout.
MAX_NOTE = 20_000
MAX_TAG = 60
MAX_TAGS = 50


class Notes:
    """The notes of one run."""

    def __init__(self, beside: Path, index: Path) -> None:
        self.path = beside if os.access(beside.parent, os.W_OK) else index.with_suffix(".notes.jsonl")

    def load(self, database: sqlite3.Connection) -> None:
        """Read the notes into the index."""
        database.execute("DELETE FROM notes")
        try:
            lines = read_regular(self.path).splitlines()
        except OSError:
            return
        for line in lines:
            try:
                entry = orjson.loads(line)
                key, note, tags = int(entry["key"]), str(entry["note"]), clean_tags(entry["tags"])
            except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
                continue  # edited by hand: the other lines still count
            _keep(database, key, note, tags)

    def write(self, database: sqlite3.Connection, key: int, rollout_id: str, note: str, tags: list[str]) -> None:
        """Append a note to the file, then show it."""
        entry = {"rollout_id": rollout_id, "note": note[:MAX_NOTE], "tags": clean_tags(tags), "key": key}
        line = orjson.dumps({**entry, "at": datetime.now(UTC).isoformat(timespec="seconds")}) + b"\n"
        try:
            with open(self.path, "ab", opener=regular_descriptor) as file:
                file.write(line)
        except OSError as error:
            raise UserError(f"cannot write {self.path}: {error.strerror}") from error
        _keep(database, key, note[:MAX_NOTE], clean_tags(tags))


def clean_tags(tags: object) -> list[str]:
    """Tags as single words, each once, in order."""
    listed = tags if isinstance(tags, list) else []
    words = ("-".join(str(tag).split())[:MAX_TAG] for tag in listed)
    return list(dict.fromkeys(word for word in words if word))[:MAX_TAGS]


def _keep(database: sqlite3.Connection, key: int, note: str, tags: list[str]) -> None:
    if note or tags:
        values = (key, note, f" {' '.join(tags)} " if tags else "")
        database.execute("INSERT OR REPLACE INTO notes VALUES (?, ?, ?)", values)
    else:
        database.execute("DELETE FROM notes WHERE key = ?", (key,))
