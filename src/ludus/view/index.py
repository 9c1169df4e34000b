"""The index of one run: an SQLite file beside the run, with a row of figures for each line of its journals.

It grows with the journals and never holds a rollout: a rollout is read from its journal by offset. The text for the
search follows the figures in a file of its own (`texts.py`). A journal that was replaced (`ludus verify`) is noticed by
its last indexed line, and the index is built again. In a folder that cannot be written, the index lies in the user's
cache folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ludus.errors import Failure, UserError, cannot_read
from ludus.runtime.regular_files import open_regular
from ludus.store.counting import name_of_row
from ludus.view.database import IndexBusy, IndexDatabase, IndexLost
from ludus.view.facts import Facts
from ludus.view.journals import identity, is_continued, lines_from, parsed, size, state_of, tail
from ludus.view.notes import Notes
from ludus.view.places import ViewedRun
from ludus.view.query import FROM, parse_query
from ludus.view.schema import FACTS, FIGURES, IS_CURRENT
from ludus.view.texts import TextIndex

#: About how many bytes of a journal are indexed in one transaction.
BATCH = 8 << 20

FileStates = list[tuple[int, int, int]]

#: The number of rollouts.jsonl among the journals of a run.
ROLLOUTS = 0

_INSERT = (
    "INSERT INTO rollouts (id, file, offset, length, number, name, key, final, task, "
    f"{', '.join(FACTS)}) VALUES ({', '.join('?' * (9 + len(FACTS)))})"
)
#: How many names one query asks for.
_NAMES = 500


class RunIndex:
    """Reads and extends the index of one run.

    `grow` is called by one thread and `texts.grow` by one, which may be another. Reading is possible at any time.
    """

    def __init__(self, run: ViewedRun) -> None:
        self.run = run
        self.journals = (run.files.rollouts, run.files.failures)
        self.version = 0  # changes whenever a page would show something else
        self._changing = threading.Lock()
        self._done: list[tuple[int, int]] = []  # how far the journals are indexed, by any viewer
        self._searched = 0
        # The state of the files when there was nothing to do. Until that changes, nothing is opened.
        self._quiet_figures: FileStates = []
        self._quiet_texts: FileStates = []
        self._rebuilding = False
        self._database, self.notes, self.texts = _open(run, self.journals)
        self.path = self._database.path

    def reading(self) -> contextlib.AbstractContextManager[sqlite3.Connection]:
        """A connection for one page, which sees the index as it is now."""
        return self._database.reading(self.texts.path)

    def changed(self) -> None:
        """Tell all pages that they would show something else."""
        with self._changing:
            self.version += 1

    def grow(self) -> int:
        """Index the figures of the next piece of each journal. Returns their bytes; 0 if there is nothing to do now.

        An index that was lost is built again from here. While another viewer indexes the run, this one shows its work.
        """
        state = self._state_of_files()
        if state == self._quiet_figures:
            return 0
        try:
            with self.writing() as database:
                grown = sum(self._grow(database, file, path) for file, path in enumerate(self.journals))
                done = [tuple(row) for row in database.execute("SELECT file, at FROM journals")]
        except IndexBusy:
            return 0
        except IndexLost:
            if self._rebuilding:  # damaged again before anything was indexed: the disk is broken
                raise
            self._rebuilding = True
            self.changed()
            return 1
        self._rebuilding = False
        if not grown:
            self._quiet_figures = state
        if grown or done != self._done:
            self.changed()
            self._done = done
        return grown

    def unsearched(self) -> int:
        """How many bytes of the journals cannot be searched yet; 0 as long as none of them has figures."""
        state = self._state_of_files()
        if state == self._quiet_texts:
            return 0
        try:
            with self.reading() as database:
                now = self.progress(database)
        except IndexLost:
            with contextlib.suppress(IndexBusy, IndexLost):
                self.texts.prepare()  # at once, because no page can be read without it
            return 1  # total unknown: at least one
        if now["texts"] != self._searched:
            self._searched = now["texts"]
            self.changed()
        if now["facts"] > now["texts"]:
            return now["bytes"] - now["texts"]
        self._quiet_texts = state
        return 0

    def _state_of_files(self) -> FileStates:
        """What tells whether any file of the run or its index was written, replaced or deleted."""
        indexes = [Path(f"{path}{end}") for path in (self.path, self.texts.path) for end in ("", "-wal")]
        return [state_of(path) for path in (*self.journals, *indexes)]

    def annotate(self, key: int, rollout_id: str, note: str, tags: list[str]) -> None:
        """Keep a person's note and tags of a rollout."""
        with self.writing() as database:
            self.notes.write(database, key, rollout_id, note, tags)
        self.changed()

    def tag_matches(self, query: str, tag: str) -> int:
        """Add a tag to every rollout that matches a query. Returns their number."""
        matched = parse_query(query)
        with self.writing(self.texts.path) as database:
            matches = database.execute(
                f"SELECT DISTINCT r.key, r.rollout_id, n.note, n.tags FROM {FROM} WHERE {matched.where}",
                matched.parameters,
            ).fetchall()
            for row in matches:
                tags = [*(row["tags"] or "").split(), tag]
                self.notes.write(database, row["key"], row["rollout_id"], row["note"] or "", tags)
        self.changed()
        return len(matches)

    def line(self, rollout: int) -> tuple[sqlite3.Row, bytes] | None:
        """The figures of a rollout, and its line of the journal."""
        with self.reading() as database:
            row = database.execute(
                "SELECT r.*, t.environment, t.task_id FROM rollouts r JOIN tasks t ON t.id = r.task WHERE r.id = ?",
                (rollout,),
            ).fetchone()
        if row is None:
            return None
        try:
            with open_regular(self.journals[row["file"]]) as file:
                file.seek(row["offset"])
                return row, file.read(row["length"])
        except OSError as error:
            raise cannot_read(self.journals[row["file"]], error) from error

    def progress(self, database: sqlite3.Connection) -> dict[str, int]:
        """How much of the journals is indexed, in bytes."""
        facts = database.execute("SELECT coalesce(sum(at), 0) FROM journals").fetchone()[0]
        texts = database.execute(f"SELECT coalesce(sum(at), 0) FROM search.progress WHERE {IS_CURRENT}").fetchone()[0]
        return {"bytes": sum(map(size, self.journals)), "facts": facts, "texts": texts}

    @contextlib.contextmanager
    def writing(self, search: Path | None = None) -> Iterator[sqlite3.Connection]:
        """A transaction. No other thread or viewer writes meanwhile."""
        with self._database.writing(search) as (database, is_new):
            if is_new:
                self.notes.load(database)
            yield database

    def _grow(self, database: sqlite3.Connection, file: int, path: Path) -> int:
        known = database.execute("SELECT * FROM journals WHERE file = ?", (file,)).fetchone()
        if known is not None and not is_continued(path, known):
            FIGURES.clear(database)
            self.notes.load(database)
            return 1
        began, number = (known["at"], known["lines"]) if known is not None else (0, 0)
        if size(path) <= began:
            return 0
        passes = self.run.pass_rewards
        rows: list[IndexedLine] = []
        with lines_from(path, began, BATCH, number) as lines:
            for number, line, _ in lines:
                try:
                    row = parsed(line)
                    if not ("outcome" in row or "reward" in row or isinstance(row.get("response"), dict)):
                        raise Failure("bad_row", "not a rollout", stage="open")
                    name = name_of_row(row) or b"%d:%d" % (file, number)
                    rows.append(IndexedLine(lines.offset, len(line), number, name, Facts(row, number, passes)))
                except (Failure, RecursionError, TypeError, ValueError) as error:
                    why = error.cause if isinstance(error, Failure) else str(error)
                    database.execute("INSERT INTO bad_lines VALUES (?, ?, ?)", (file, number, why[:300]))
            at, number = lines.position
        if at == began:
            return 0
        _add(database, file, rows)
        values = (file, identity(path), at, number - 1, tail(path, at))
        database.execute("INSERT OR REPLACE INTO journals VALUES (?, ?, ?, ?, ?)", values)
        return at - began


class IndexedLine(NamedTuple):
    """A line of a journal and what the index keeps of it. `name` names its rollout."""

    offset: int
    length: int
    number: int
    name: bytes
    facts: Facts

    @property
    def key(self) -> int:
        """The rollout's name in 63 bits."""
        return int.from_bytes(hashlib.blake2b(self.name, digest_size=8).digest(), "big") >> 1

    @property
    def attempt(self) -> int:
        """The number of the attempt."""
        return int(self.facts.columns["attempt"])


class _Known(NamedTuple):
    """A line that is indexed."""

    id: int
    file: int
    attempt: int


def _add(database: sqlite3.Connection, file: int, lines: list[IndexedLine]) -> None:
    """Add the lines that count, as `ludus.store.counting` says. One line of a rollout is final: how it ended."""
    next_id = database.execute("SELECT coalesce(max(id), 0) + 1 FROM rollouts").fetchone()[0]
    known = _known(database, [line.key for line in lines])
    tasks: dict[tuple[str, str], int] = {}
    final: dict[int, int] = {}
    rows, tools, values = [], [], []
    for line in lines:
        facts, others = line.facts, known.setdefault(line.key, [])
        if any(other.file == file and (file == ROLLOUTS or other.attempt == line.attempt) for other in others):
            continue  # a duplicate
        ended = file != ROLLOUTS and any(other.file == ROLLOUTS for other in others)
        final[next_id] = not ended
        if not ended:
            final |= {other.id: False for other in others}
        others.append(_Known(next_id, file, line.attempt))
        place = next_id, file, line.offset, line.length, line.number, line.key, facts.key
        rows.append((*place, 1, _task(database, facts, tasks), *facts.columns.values()))
        tools += [(next_id, name, *counts) for name, counts in facts.tools.items()]
        values += [(next_id, *value) for value in facts.values]
        next_id += 1
    database.executemany(_INSERT, rows)
    not_final = [(rollout,) for rollout, is_final in final.items() if not is_final]
    database.executemany("UPDATE rollouts SET final = 0 WHERE id = ?", not_final)
    database.executemany("INSERT INTO tools VALUES (?, ?, ?, ?)", tools)
    database.executemany("INSERT INTO named_values VALUES (?, ?, ?, ?)", values)


def _known(database: sqlite3.Connection, names: list[int]) -> dict[int, list[_Known]]:
    """The indexed lines of rollouts, by name."""
    known: dict[int, list[_Known]] = {}
    for start in range(0, len(names), _NAMES):
        asked = names[start : start + _NAMES]
        query = f"SELECT name, id, file, attempt FROM rollouts WHERE name IN ({', '.join('?' * len(asked))})"
        for name, *line in database.execute(query, asked):
            known.setdefault(name, []).append(_Known(*line))
    return known


def _task(database: sqlite3.Connection, facts: Facts, tasks: dict[tuple[str, str], int]) -> int:
    name = facts.environment, facts.task_id
    known = tasks.get(name)
    if known is None:
        row = database.execute("SELECT id FROM tasks WHERE environment = ? AND task_id = ?", name).fetchone()
        if row is None:
            added = database.execute(
                "INSERT INTO tasks (environment, task_id, about) VALUES (?, ?, ?)", (*name, facts.columns["about"])
            )
            known = int(added.lastrowid or 0)
        else:
            known = int(row["id"])
        tasks[name] = known
    return known


Opened = tuple[IndexDatabase, Notes, TextIndex]


def _open(run: ViewedRun, journals: tuple[Path, ...]) -> Opened:
    """The index of a run and its notes: beside the run, or in the cache folder if nothing can be written there."""
    beside = run.files.beside("view.sqlite")
    if os.access(beside.parent, os.W_OK) and (not beside.exists() or (beside.is_file() and os.access(beside, os.W_OK))):
        with contextlib.suppress(UserError):
            return _prepared(run, beside, journals)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ludus" / "view"
    try:
        cache.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise UserError(f"cannot write {cache}: {error.strerror}", "Set XDG_CACHE_HOME to a folder of yours") from error
    return _prepared(run, cache / f"{run.key}.sqlite", journals)


def _prepared(run: ViewedRun, path: Path, journals: tuple[Path, ...]) -> Opened:
    """An index with its tables. Damaged files are deleted first."""
    database, notes = IndexDatabase(path, FIGURES), Notes(run.files.beside("notes.jsonl"), path)
    texts = TextIndex(path.with_suffix(".text.sqlite"), path, journals)
    for last in (False, True):
        try:
            with database.writing() as (connection, _):
                notes.load(connection)
            texts.prepare()
        except IndexBusy:  # another viewer has made the tables, and writes
            break
        except IndexLost:
            if last:
                raise
        else:
            break
    return database, notes, texts
