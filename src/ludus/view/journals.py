"""Journals as the index reads them: whole lines from an offset on, and whether the indexed part is still there."""

from __future__ import annotations

import hashlib
import sqlite3
import stat
from pathlib import Path

from ludus.errors import Failure
from ludus.record import Row
from ludus.runtime.regular_files import open_regular
from ludus.store.lines import Block, StoredLines
from ludus.store.parsing import parse

#: A longer line is listed as unreadable: reading it would take several times its size in memory.
MAX_LINE = 256 << 20

_TAIL = 4096


def lines_from(path: Path, start: int, size: int, before: int = 0) -> StoredLines:
    """The lines that start in a part of a journal, which follows line number `before`."""
    is_new_line = start == 0 or _ends_line(path, start)
    return StoredLines(path, Block(start, size, before + is_new_line))


def _ends_line(path: Path, end: int) -> bool:
    """Whether a newline stands before an offset. A last line that is whole may get its newline later."""
    with open_regular(path) as file:
        file.seek(end - 1)
        return file.read(1) == b"\n"


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
        status = path.stat()
    except OSError:
        return ""
    return f"{status.st_dev}:{status.st_ino}"


def tail(path: Path, end: int) -> str:
    """A digest of what stands before an offset."""
    try:
        with open_regular(path) as file:
            file.seek(max(0, end - _TAIL))
            return hashlib.blake2b(file.read(min(end, _TAIL)), digest_size=16).hexdigest()
    except OSError:
        return ""


def size(path: Path) -> int:
    """The length of a journal in bytes; 0 if there is no such file."""
    try:
        status = path.stat()
    except OSError:
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


def state_of(path: Path) -> tuple[int, int, int]:
    """What changes when a file is written or replaced. An empty file counts as missing: readers of SQLite make some."""
    try:
        status = path.stat()
    except OSError:
        return 0, 0, 0
    return (status.st_ino, status.st_size, status.st_mtime_ns) if status.st_size else (0, 0, 0)
