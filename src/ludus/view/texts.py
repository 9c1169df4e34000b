"""The search index of one run: the words of its rollouts, in an SQLite file of their own.

It follows the figures, which number the rollouts, and can be filled while they are written. A large run's text is
indexed in a helper process: SQLite takes the GIL for every rollout, so two threads would wait for each other.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import orjson

from ludus.errors import Failure, UserError
from ludus.record import Row
from ludus.runtime.processes import ProcessPool, processors
from ludus.store.parsing import parse
from ludus.view.database import IndexBusy, IndexDatabase, IndexLost
from ludus.view.facts import items_of, object_of, storable
from ludus.view.journals import lines_from
from ludus.view.schema import FIGURES, TEXTS

#: How many characters of a rollout are searched.
MAX_TEXT = 1_000_000

#: About how many bytes of a journal are indexed in one transaction. Large pieces are faster: the search index sorts
#: the words of a piece in memory (`hashsize` bytes of them) and merges pieces later. Merging four at a time, as SQLite
#: does by default, takes a third of the time of a large run. A search reads 64 pieces in a few ms.
BATCH = 48 << 20
MAX_ROLLOUTS = 50_000  #: in one piece, because their numbers are held in memory
_SEARCH_OPTIONS = {"hashsize": 8 << 20, "automerge": 64, "crisismerge": 256}

#: A helper process takes half a second to start, so less text than this is indexed here.
HELPER_BYTES = 32 << 20
_HELPER_TIMEOUT = 600.0

_ROLLOUTS = (
    "SELECT offset, length, id FROM rollouts WHERE file = ? AND offset >= ? AND offset < ? ORDER BY offset LIMIT ?"
)

#: The fields of a record that hold a text, and all fields that are looked into, as they are written in a line.
_FIELDS = ("rollout_id", "task_id", "cause", "mask", "stop_reason")
_KEY_IN_LINE = re.compile(f'"(?:{"|".join(_FIELDS)}|responses_create_params|response|verdict_fields)":'.encode())

#: The fields of an item that hold a text, or a list of parts with texts.
_TEXT_KEYS = ("name", "arguments", "output", "content", "summary")


class TextIndex:
    """Extends the search index of one run."""

    def __init__(self, path: Path, figures: Path, journals: tuple[Path, ...]) -> None:
        self.path, self.figures, self.journals = path, figures, journals
        self._database = IndexDatabase(path, TEXTS, patient=False)
        self._figures = IndexDatabase(figures, FIGURES)

    def prepare(self) -> None:
        """Make the file and its tables, if they are not there."""
        if not self._database.is_prepared:
            with self._database.writing():
                pass

    def grow(self) -> int:
        """Index the text of the next piece of each journal, as far as figures are known. Returns their bytes.

        They are 0, too, while another viewer writes, after a damaged file was deleted, and if a journal is being
        replaced: a later call goes on.
        """
        try:
            with self._database.writing() as (database, _):
                own = database.execute("SELECT id FROM built").fetchone() or (None,)
                done = dict(database.execute("SELECT file, at FROM progress").fetchall())
                built, pieces = self._next_pieces(own[0], done)
                if built != own[0]:
                    TEXTS.clear(database)
                    database.execute("INSERT INTO built VALUES (?)", (built,))
                database.executemany("INSERT INTO texts (texts, rank) VALUES (?, ?)", _SEARCH_OPTIONS.items())
                for piece in pieces:
                    database.executemany("INSERT INTO texts (rowid, text) VALUES (?, ?)", _texts_of(piece))
                    database.execute("INSERT OR REPLACE INTO progress VALUES (?, ?)", (piece.file, piece.end))
                return sum(piece.end - piece.start for piece in pieces)
        except (IndexBusy, IndexLost, _JournalChanged):
            return 0

    def _next_pieces(self, own: str | None, done: dict[int, int]) -> tuple[str, list[TextPiece]]:
        """The id of the figures, and the next pieces. What is done counts only if it belongs to these figures."""
        pieces = []
        with self._figures.reading() as figures:
            built: str = figures.execute("SELECT id FROM built").fetchone()[0]
            for file, known in figures.execute("SELECT file, at FROM journals").fetchall():
                at = done.get(file, 0) if built == own else 0
                if at < known:
                    end, ids = min(at + BATCH, known), dict[int, int]()
                    for offset, length, rollout in figures.execute(_ROLLOUTS, (file, at, end, MAX_ROLLOUTS)):
                        ids[offset], last = rollout, offset + length
                    if len(ids) == MAX_ROLLOUTS or (ids and last > end):
                        end = last
                    pieces.append(TextPiece(file, self.journals[file], at, end, ids))
        return built, pieces


class TextPiece(NamedTuple):
    """A part of a journal, and the numbers of the rollouts in it by their offsets."""

    file: int
    path: Path
    start: int
    end: int
    rollouts: dict[int, int]


class TextHelper:
    """Grows the search indexes of large runs in one helper process, which ends with `close`."""

    def __init__(self) -> None:
        self._runner: asyncio.Runner | None = None
        self._pool: ProcessPool | None = None

    def grow(self, index: TextIndex, size: int) -> int:
        """Index the next piece of the `size` bytes that are left. Returns its bytes."""
        if size < HELPER_BYTES or processors() == 1:
            return index.grow()
        if self._runner is None or self._pool is None:
            self._runner, self._pool = asyncio.Runner(), ProcessPool(1, memory=None)
        work = self._pool.run(grow_texts, index.path, index.figures, index.journals, timeout=_HELPER_TIMEOUT)
        try:
            return self._runner.run(work)
        except UserError:
            raise
        except Exception:  # the helper process could not start, or died
            return index.grow()

    def close(self) -> None:
        """End the helper process. Another one starts when there is much text again."""
        if self._runner is not None and self._pool is not None:
            self._runner.run(self._pool.close())
            self._runner.close()
        self._runner = self._pool = None


def grow_texts(path: Path, figures: Path, journals: tuple[Path, ...]) -> int:
    """`TextIndex.grow`, as a helper process calls it."""
    return TextIndex(path, figures, journals).grow()


def line_text(line: bytes) -> str:
    """Everything in a rollout that a person may look for: prompt, answers, reasoning, calls, outputs, why it failed.

    `model_calls` and what follows it are not parsed if nothing of that is searched: token ids take most of the time.
    """
    calls = line.rfind(b',"model_calls":[')
    if calls > 0 and not _KEY_IN_LINE.search(line, calls):
        # The bytes before `model_calls` and a brace are JSON only if it is a field of the record itself.
        with contextlib.suppress(orjson.JSONDecodeError):
            row = orjson.loads(line[:calls] + b"}")
            if isinstance(row, dict) and all(name in row for name in _verdict_fields(row)):
                return searched_text(row)
    try:
        return searched_text(parse(line))
    except (Failure, RecursionError):
        return ""


def searched_text(row: Row) -> str:
    """The searched text of a record."""
    pieces: list[str] = []
    room = MAX_TEXT
    for text in _texts(row):
        pieces.append(text if len(text) <= room else text[:room])
        room -= len(pieces[-1]) + 1
        if room <= 0:
            break
    return storable("\n".join(pieces))


def _texts(row: Row) -> list[str]:
    values = [row.get(name) for name in _FIELDS]
    asked = object_of(row.get("responses_create_params"))
    prompt = asked.get("input")
    values += (asked.get("instructions"), prompt)
    for item in (*items_of(prompt), *items_of(object_of(row.get("response")).get("output"))):
        for key in _TEXT_KEYS:
            value = item.get(key)
            if isinstance(value, list):
                values += [part.get("text") for part in value if isinstance(part, dict)]
            elif value is not None:
                values.append(value)
    values += [row.get(name) for name in _verdict_fields(row)]
    return [text for text in values if isinstance(text, str)]


def _verdict_fields(row: Row) -> list[str]:
    named = row.get("verdict_fields")
    return [name for name in named if isinstance(name, str)] if isinstance(named, list) else []


class _JournalChanged(Exception):
    """A rollout is not where the figures say."""


def _texts_of(piece: TextPiece) -> Iterator[tuple[int, str]]:
    """The number and the searched text of each rollout of a piece."""
    count = 0
    if piece.path.exists():
        with lines_from(piece.path, piece.start, piece.end - piece.start) as lines:
            for _, line, _ in lines:
                rollout = piece.rollouts.get(lines.offset)
                if rollout is not None:
                    count += 1
                    yield rollout, line_text(line)
    if count < len(piece.rollouts):
        raise _JournalChanged
