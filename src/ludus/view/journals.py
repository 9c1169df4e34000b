"""Journals as the index reads them: whole lines from an offset on, and whether the indexed part is still there."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from ludus.errors import Failure, cannot_read
from ludus.record import Row
from ludus.store.stored import parse

#: A longer line is listed as unreadable: reading it would take several times its size in memory.
MAX_LINE = 256 << 20

_TAIL = 4096


def whole_lines(path: Path, start: int, end: int) -> Iterator[tuple[int, bytes]]:
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


def parsed(line: bytes) -> Row:
    """The record of a line. Raises a `Failure` for a line that is too long or no record."""
    if len(line) > MAX_LINE:
        raise Failure("bad_row", f"the line is longer than {MAX_LINE >> 20} MB", stage="open")
    return parse(line)


def is_continued(path: Path, known: sqlite3.Row) -> bool:
    """Whether the indexed part of a journal is still there as it was read."""
    if size(path) < known["at"] or identity(path) != known["identity"]:
        return False
    return bool(tail(path, known["at"]) == known["tail"])


def identity(path: Path) -> str:
    """The file itself: a file that took its place has another number."""
    try:
        found = path.stat()
    except OSError:
        return ""
    return f"{found.st_dev}:{found.st_ino}"


def tail(path: Path, end: int) -> str:
    """A digest of what stands before an offset."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, end - _TAIL))
            return hashlib.blake2b(file.read(min(end, _TAIL)), digest_size=16).hexdigest()
    except OSError:
        return ""


def size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def state_of(path: Path) -> tuple[int, int, int]:
    """What changes when a file is written or replaced. An empty file counts as missing: readers of SQLite make some."""
    try:
        found = path.stat()
    except OSError:
        return 0, 0, 0
    return (found.st_ino, found.st_size, found.st_mtime_ns) if found.st_size else (0, 0, 0)
