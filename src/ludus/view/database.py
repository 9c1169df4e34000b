"""An SQLite file of an index. It may be lost at any time: a damaged file is deleted and rebuilt.

Several viewers may have the same file open. One writes at a time; each piece of a journal is indexed by one of them.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path

from ludus.errors import UserError
from ludus.view.schema import Schema

#: How long a viewer waits for another one that writes.
WAIT_SECONDS = 30.0

_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_NO_ROOM = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR)

#: SQLite's messages for a table that is missing, or has other columns.
_NO_TABLE = ("no such table", "no such column")
_BROKEN_TABLE = ("error in tokenizer", "vtable constructor failed")


class IndexBusy(UserError):
    """Another viewer writes the index."""


class IndexLost(UserError):
    """The index is damaged, deleted or of another version. It is built again."""


class IndexDatabase:
    """A file of an index. `writing` is a transaction; `reading` sees a snapshot of the index.

    Both may attach the file `search` as the read-only schema `search`. `patient` says whether a writer waits for
    another one.
    """

    def __init__(self, path: Path, schema: Schema, *, patient: bool = True) -> None:
        self.path = path
        self._schema, self._patient = schema, patient
        self._lock = threading.Lock()

    @property
    def is_prepared(self) -> bool:
        """Whether the file is there with the tables of its version."""
        with contextlib.suppress(UserError), self.reading() as database:
            return self._schema.version_of(database) == self._schema.version
        return False

    @contextlib.contextmanager
    def reading(self, search: Path | None = None) -> Iterator[sqlite3.Connection]:
        """A connection that cannot write."""
        try:
            with _connected(self.path, "ro", WAIT_SECONDS, search) as database:
                database.execute("BEGIN")
                yield database
        except sqlite3.DatabaseError as error:
            if _code(error) == sqlite3.SQLITE_CANTOPEN or str(error).startswith(_NO_TABLE):  # not made yet, or deleted
                raise self._lost() from error
            explained = self._explained(error, "read")
            if isinstance(explained, IndexLost):
                with self._lock:
                    _delete(self.path)
                if search is not None:  # SQLite does not say which of the two is damaged
                    _delete(search)
            raise explained from error

    @contextlib.contextmanager
    def writing(self, search: Path | None = None) -> Iterator[tuple[sqlite3.Connection, bool]]:
        """A transaction, and whether the tables were made anew. No other thread or viewer writes meanwhile."""
        with self._lock:
            try:
                with _connected(self.path, "rwc", WAIT_SECONDS if self._patient else 0.0, search) as database:
                    database.execute("PRAGMA main.journal_mode = WAL")
                    database.execute("PRAGMA main.synchronous = OFF")  # a lost index is built again
                    database.execute("PRAGMA main.cache_size = -16000")
                    with database:
                        database.execute("BEGIN IMMEDIATE")
                        if self._schema.version_of(database) not in (0, self._schema.version):
                            _delete(self.path)  # dropping its tables would not shrink the file
                            raise self._lost()
                        yield database, self._schema.prepare(database)
            except sqlite3.DatabaseError as error:
                explained = self._lost() if str(error).startswith(_NO_TABLE) else self._explained(error, "write")
                if isinstance(explained, IndexLost):
                    _delete(self.path)
                raise explained from error

    def _explained(self, error: sqlite3.DatabaseError, verb: str) -> UserError:
        """The error for a user. A bug in a statement is raised as it is."""
        code = _code(error)
        if code in _DAMAGED or str(error).startswith(_BROKEN_TABLE):
            return self._lost()
        if code in _BUSY:
            return IndexBusy(f"another viewer is writing {self.path}", "Try again in a moment")
        if code in (*_NO_ROOM, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
            hint = "Make room on the disk" if code in _NO_ROOM else "Check that its folder exists and can be written"
            return UserError(f"cannot {verb} {self.path}: {error}", hint)
        raise error

    def _lost(self) -> IndexLost:
        return IndexLost(f"the index {self.path} was damaged or deleted and is built again", "Try again in a moment")


@contextlib.contextmanager
def _connected(path: Path, mode: str, wait: float, search: Path | None) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(
        sqlite3.connect(f"{_uri(path)}?mode={mode}", uri=True, timeout=wait, isolation_level=None)
    ) as database:
        database.row_factory = sqlite3.Row
        if search is not None:
            database.execute("ATTACH ? AS search", (f"{_uri(search)}?mode=ro",))
        yield database


def _uri(path: Path) -> str:
    return path.absolute().as_uri()


def _code(error: sqlite3.DatabaseError) -> int:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF  # the higher bits say more about the same error


def _delete(path: Path) -> None:
    for end in ("-wal", "-shm", ""):
        Path(f"{path}{end}").unlink(missing_ok=True)
