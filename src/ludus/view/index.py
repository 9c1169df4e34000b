"""The index of one run: an SQLite file beside the run, with a row of figures for each line of its journals.

It grows with the journals and never holds a rollout: a rollout is read from its journal by offset. The figures come
first, because every page needs them; the text for the search follows. A journal that was replaced (`ludus verify`)
is noticed by its last indexed line, and the index is built again. In a folder that cannot be written, the index lies
in the user's cache folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ludus.errors import Failure, UserError, cannot_read
from ludus.record import Row
from ludus.store.run import recorded_scales
from ludus.store.stored import parse
from ludus.view import schema
from ludus.view.facts import Facts, searched_text
from ludus.view.notes import Notes
from ludus.view.places import ViewedRun
from ludus.view.query import FROM, parse_query

#: About how many bytes of a journal are indexed in one transaction. Text is faster in large pieces: the search index
#: sorts the words of a piece in memory (`hashsize` bytes of them) and merges pieces later. Merging four at a time, as
#: SQLite does by default, takes a third of the time of a large run. A search reads 32 pieces in less than 1 ms.
FACTS_BATCH, TEXT_BATCH = 8 << 20, 48 << 20
_SEARCH_OPTIONS = {"hashsize": 32 << 20, "automerge": 32, "crisismerge": 256}

#: A longer line is listed as unreadable: reading it would take several times its size in memory.
MAX_LINE = 256 << 20

_TAIL = 4096
_NONE = (-1, -1)
_INSERT = (
    "INSERT INTO rollouts (file, offset, length, number, key, final, task, "
    f"{', '.join(schema.FACTS)}) VALUES ({', '.join('?' * (7 + len(schema.FACTS)))})"
)


class RunIndex:
    """Reads and extends the index of one run. `grow` is called by one thread; reading is possible at any time."""

    def __init__(self, run: ViewedRun) -> None:
        self.run = run
        self.path = _writable_place(run)
        self.notes = Notes(run.beside("notes.jsonl"), self.path)
        self.journals = (run.files.rollouts, run.files.failures)
        self.version = 0  # changes whenever a page would show something else
        self._writing = threading.Lock()
        with self._writer() as database:
            schema.prepare(database)
            self.notes.load(database)

    @contextlib.contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A connection for one page, which sees the index as it is now."""
        database = sqlite3.connect(f"{self.path.absolute().as_uri()}?mode=ro", uri=True, timeout=30)
        database.row_factory = sqlite3.Row
        try:
            database.execute("BEGIN")
            yield database
        finally:
            database.close()

    def grow(self) -> bool:
        """Index the next piece of a journal: figures before text. False if there is nothing new."""
        with self._writer() as database:
            for file, path in enumerate(self.journals):
                if self._grow_facts(database, file, path):
                    self.version += 1
                    return True
            for file, path in enumerate(self.journals):
                if self._grow_texts(database, file, path):
                    self.version += 1
                    return True
        return False

    def annotate(self, key: int, rollout_id: str, note: str, tags: list[str]) -> None:
        """Keep a person's note and tags of a rollout."""
        with self._writer() as database:
            self.notes.write(database, key, rollout_id, note, tags)
        self.version += 1

    def tag_matches(self, query: str, tag: str) -> int:
        """Add a tag to every rollout that matches a query. Returns their number."""
        found = parse_query(query)
        with self._writer() as database:
            matches = database.execute(
                f"SELECT DISTINCT r.key, r.rollout_id, n.note, n.tags FROM {FROM} WHERE {found.where}", found.parameters
            ).fetchall()
            for row in matches:
                tags = [*(row["tags"] or "").split(), tag]
                self.notes.write(database, row["key"], row["rollout_id"], row["note"] or "", tags)
        self.version += 1
        return len(matches)

    def line(self, rollout: int) -> tuple[sqlite3.Row, bytes] | None:
        """The figures of a rollout, and its line of the journal."""
        with self.reading() as database:
            found = database.execute(
                "SELECT r.*, t.environment, t.task_id FROM rollouts r JOIN tasks t ON t.id = r.task WHERE r.id = ?",
                (rollout,),
            ).fetchone()
        if found is None:
            return None
        try:
            with self.journals[found["file"]].open("rb") as file:
                file.seek(found["offset"])
                return found, file.read(found["length"])
        except OSError as error:
            raise cannot_read(self.journals[found["file"]], error) from error

    def progress(self, database: sqlite3.Connection) -> dict[str, Any]:
        """How much of the journals is indexed, in bytes."""
        done = {row["file"]: row for row in database.execute("SELECT * FROM journals")}
        sizes = [_size(path) for path in self.journals]
        facts = sum(done[file]["facts_at"] if file in done else 0 for file in range(2))
        texts = sum(done[file]["text_at"] if file in done else 0 for file in range(2))
        return {"bytes": sum(sizes), "facts": facts, "texts": texts}

    @contextlib.contextmanager
    def _writer(self) -> Iterator[sqlite3.Connection]:
        with self._writing:
            database = sqlite3.connect(self.path, timeout=30)
            database.row_factory = sqlite3.Row
            try:
                database.execute("PRAGMA journal_mode = WAL")
                database.execute("PRAGMA synchronous = OFF")  # a lost index is built again
                database.execute("PRAGMA cache_size = -16000")
                with database:
                    yield database
            except sqlite3.DatabaseError as error:
                raise UserError(f"cannot write {self.path}: {error}", f"Delete it: rm {self.path}") from error
            finally:
                database.close()

    def _grow_facts(self, database: sqlite3.Connection, file: int, path: Path) -> bool:
        known = database.execute("SELECT * FROM journals WHERE file = ?", (file,)).fetchone()
        if known is not None and not _is_continued(path, known):
            schema.clear(database)
            self.notes.load(database)
            return True
        at, number = (known["facts_at"], known["lines"]) if known is not None else (0, 0)
        passes = {scale.name: scale.pass_reward for scale in recorded_scales(self.run.files.run)}
        tasks: dict[tuple[str, str], int] = {}
        began = at
        for offset, line in _whole_lines(path, at, at + FACTS_BATCH):
            number, at = number + 1, offset + len(line)
            if line.isspace():
                continue
            try:
                row = parse(line) if len(line) <= MAX_LINE else _too_long()
                if not ("outcome" in row or "reward" in row or isinstance(row.get("response"), dict)):
                    raise Failure("bad_row", "not a rollout", stage="open")
                _add(database, file, offset, len(line), number, Facts(row, number, passes), tasks)
            except (Failure, RecursionError, TypeError, ValueError) as error:
                why = error.cause if isinstance(error, Failure) else str(error)
                database.execute("INSERT INTO bad_lines VALUES (?, ?, ?)", (file, number, why[:300]))
        if at == began:
            return False
        texts = known["text_at"] if known is not None else 0
        values = (file, _identity(path), at, number, texts, _tail(path, at))
        database.execute("INSERT OR REPLACE INTO journals VALUES (?, ?, ?, ?, ?, ?)", values)
        return True

    def _grow_texts(self, database: sqlite3.Connection, file: int, path: Path) -> bool:
        known = database.execute("SELECT * FROM journals WHERE file = ?", (file,)).fetchone()
        if known is None or known["text_at"] >= known["facts_at"]:
            return False
        database.executemany("INSERT INTO texts (texts, rank) VALUES (?, ?)", _SEARCH_OPTIONS.items())
        piece = _Piece(path, known["text_at"], min(known["text_at"] + TEXT_BATCH, known["facts_at"]))
        rollouts = database.execute(
            "SELECT offset, id FROM rollouts WHERE file = ? AND offset >= ? ORDER BY offset", (file, piece.at)
        )
        database.executemany("INSERT INTO texts (rowid, text) VALUES (?, ?)", piece.texts(rollouts))
        if piece.at == known["text_at"]:
            return False
        database.execute("UPDATE journals SET text_at = ? WHERE file = ?", (piece.at, file))
        return True


class _Piece:
    """The lines of a part of a journal. `at` is the offset up to which they were read."""

    def __init__(self, path: Path, start: int, end: int) -> None:
        self.at = start
        self._lines = _whole_lines(path, start, end)

    def texts(self, rollouts: Iterator[tuple[int, int]]) -> Iterator[tuple[int, str]]:
        """The id and the searched text of each rollout, given the offsets and ids of rollouts in the same order."""
        offset, rollout = next(rollouts, _NONE)
        for start, line in self._lines:
            self.at = start + len(line)
            if start == offset:
                yield rollout, searched_text(_parsed(line))
                offset, rollout = next(rollouts, _NONE)


def _add(
    database: sqlite3.Connection,
    file: int,
    offset: int,
    length: int,
    number: int,
    facts: Facts,
    tasks: dict[tuple[str, str], int],
) -> None:
    """Add a row. Of the lines of one rollout, one is final: how it ended."""
    columns = facts.columns
    task = _task(database, facts, tasks)
    final = 1
    for other in database.execute("SELECT id, outcome FROM rollouts WHERE key = ? AND final", (facts.key,)).fetchall():
        if other["outcome"] != "failed":
            final = 0  # a duplicated line, or a failed attempt of a rollout that completed
        else:
            database.execute("UPDATE rollouts SET final = 0 WHERE id = ?", (other["id"],))
    values = (file, offset, length, number, facts.key, final, task, *(columns[name] for name in schema.FACTS))
    rollout = database.execute(_INSERT, values).lastrowid
    if facts.tools:
        tools = [(rollout, name, *counts) for name, counts in facts.tools.items()]
        database.executemany("INSERT INTO tools VALUES (?, ?, ?, ?)", tools)
    if facts.values:
        named = [(rollout, *value) for value in facts.values]
        database.executemany("INSERT INTO named_values VALUES (?, ?, ?, ?)", named)


def _task(database: sqlite3.Connection, facts: Facts, tasks: dict[tuple[str, str], int]) -> int:
    name = facts.environment, facts.task_id
    known = tasks.get(name)
    if known is None:
        found = database.execute("SELECT id FROM tasks WHERE environment = ? AND task_id = ?", name).fetchone()
        if found is None:
            added = database.execute(
                "INSERT INTO tasks (environment, task_id, about) VALUES (?, ?, ?)", (*name, facts.columns["about"])
            )
            known = int(added.lastrowid or 0)
        else:
            known = int(found["id"])
        tasks[name] = known
    return known


def _whole_lines(path: Path, start: int, end: int) -> Iterator[tuple[int, bytes]]:
    """The lines that start in a part of a file. A last line without a newline is still being written."""
    try:
        with path.open("rb", buffering=1 << 18) as file:
            file.seek(start)
            offset = start
            while offset < end and (line := file.readline()).endswith(b"\n"):
                yield offset, line
                offset += len(line)
    except FileNotFoundError:
        return
    except OSError as error:
        raise cannot_read(path, error) from error


def _parsed(line: bytes) -> Row:
    try:
        return parse(line)
    except (Failure, RecursionError):
        return {}


def _too_long() -> Row:
    raise Failure("bad_row", f"the line is longer than {MAX_LINE >> 20} MB", stage="open")


def _is_continued(path: Path, known: sqlite3.Row) -> bool:
    """Whether the indexed part of a journal is still there as it was read."""
    if _size(path) < known["facts_at"] or _identity(path) != known["identity"]:
        return False
    return bool(_tail(path, known["facts_at"]) == known["tail"])


def _identity(path: Path) -> str:
    """The file itself: a file that took its place has another number."""
    try:
        found = path.stat()
    except OSError:
        return ""
    return f"{found.st_dev}:{found.st_ino}"


def _tail(path: Path, end: int) -> str:
    """A digest of what stands before an offset."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, end - _TAIL))
            return hashlib.blake2b(file.read(min(end, _TAIL)), digest_size=16).hexdigest()
    except OSError:
        return ""


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _writable_place(run: ViewedRun) -> Path:
    """Where the index of a run lies: beside the run, or in the cache folder if the run's folder is read-only."""
    beside = run.beside("view.sqlite")
    if beside.is_file() and os.access(beside, os.W_OK) and os.access(beside.parent, os.W_OK):
        return beside
    if not beside.exists() and os.access(beside.parent, os.W_OK):
        return beside
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ludus" / "view"
    try:
        cache.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise UserError(f"cannot write {cache}: {error.strerror}", "Set XDG_CACHE_HOME to a folder of yours") from error
    return cache / f"{run.key}.sqlite"
