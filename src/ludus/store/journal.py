"""Append-only JSONL journals: a collection that is killed at any moment keeps every finished rollout.

Each append is one write and is never changed. It holds one line, or the lines of rollouts that were judged together. A
kill can end a write early: whole lines before that point stay, and the next open cuts off the torn last line. A full
disk can end it early too: the failed append cuts off everything it wrote. A file lock allows one process per journal.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import orjson

from ludus.errors import UserError, cannot_read
from ludus.runtime.encoding import json_error
from ludus.runtime.regular_files import open_regular, regular_descriptor
from ludus.store.parsing import is_whole


class FullDisk(UserError):
    """There is no space left at the moment: the write can be tried again."""


class Journal:
    """An append-only JSONL file. `hint` ends the error message of a failed write and tells the user what to do.

    with Journal(path) as journal:
        journal.append(rollout.encode())
    """

    def __init__(self, path: Path, hint: str = "Recorded rollouts are safe: make room, then use --resume") -> None:
        self.path = path
        self.before_write: Callable[[], None] | None = None  #: called before each write; an OSError fails the write
        self._hint = hint
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = open_locked(path, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise UserError(f"cannot write {path}: {error.strerror}", "Choose another --output") from error
        self._size = self._repair()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def empty(self) -> bool:
        """Whether the journal has no lines."""
        return self._size == 0

    @property
    def size(self) -> int:
        """The length of the file in bytes."""
        return self._size

    def append(self, line: bytes) -> None:
        """Write one line, or several with newlines between them. If the write fails, the journal keeps none."""
        data = line + b"\n"
        try:
            if self.before_write is not None:
                self.before_write()
            written = os.pwrite(self._file, data, self._size)
            while written < len(data):
                written += os.pwrite(self._file, data[written:], self._size + written)
        except OSError as error:
            os.ftruncate(self._file, self._size)
            raise self._write_error(error) from error
        self._size += len(data)

    def read(self) -> Iterator[dict[str, Any]]:
        """All rows."""
        return (row for _, row in self.rows_with_offsets())

    def rows_with_offsets(
        self, hint: str = "Remove the line, then use --resume"
    ) -> Iterator[tuple[int, dict[str, Any]]]:
        """All rows, each with its byte offset in the file. `hint` ends the error about a line that is not JSON."""
        offset = 0
        with open_regular(self.path) as file:
            for number, line in enumerate(file, start=1):
                try:
                    yield offset, orjson.loads(line)
                except orjson.JSONDecodeError as error:
                    raise UserError(f"{self.path}:{number}: {json_error(error)}", hint) from error
                offset += len(line)

    def read_at(self, offset: int) -> dict[str, Any]:
        """The row at a byte offset."""
        row: dict[str, Any] = orjson.loads(self.line_at(offset))
        return row

    def line_at(self, offset: int) -> bytes:
        """The line at a byte offset."""
        with open_regular(self.path) as file:
            file.seek(offset)
            return file.readline()

    def bytes_at(self, offset: int, length: int) -> bytes:
        """So many bytes from an offset on."""
        try:
            return os.pread(self._file, length, offset)
        except OSError as error:
            raise cannot_read(self.path, error) from error

    def clear(self) -> None:
        """Delete all lines."""
        os.ftruncate(self._file, 0)
        self._size = 0

    def close(self, *, sync: bool = True) -> None:
        """Close the file; with `sync`, when it is on the disk."""
        if self._file >= 0:
            file, self._file = self._file, -1
            try:
                if sync:
                    os.fsync(file)
            except OSError as error:
                raise self._write_error(error) from error
            finally:
                os.close(file)

    def _write_error(self, error: OSError) -> UserError:
        kind = FullDisk if error.errno in (errno.ENOSPC, errno.EDQUOT) else UserError
        return kind(f"cannot write {self.path}: {error.strerror}", self._hint)

    def _repair(self) -> int:
        """Cut off a torn last line; add a newline that only is missing. Returns the new size of the file."""
        size = end = os.fstat(self._file).st_size
        while end > 0:
            start = max(0, end - 65536)
            newline = os.pread(self._file, end - start, start).rfind(b"\n")
            if newline >= 0:
                end = start + newline + 1
                break
            end = start
        if end < size and is_whole(os.pread(self._file, size - end, end)):
            return size + os.pwrite(self._file, b"\n", size)
        if end < size:
            os.ftruncate(self._file, end)
        return end


def open_locked(path: Path, flags: int, *, to_write: bool = True) -> int:
    """Open a file and lock it until it is closed. Refuses a file that another process has locked.

    Several processes may hold the lock of a file at once if none of them wants `to_write`.
    `ludus verify` may replace the file between the open and the lock: then the new file is opened.
    """
    while True:
        file = regular_descriptor(path, flags | os.O_CLOEXEC)
        try:
            _lock(file, path, to_write)
            if os.path.samestat(os.fstat(file), os.stat(path)):
                return file
        except FileNotFoundError:  # it was deleted after it was opened
            if not flags & os.O_CREAT:
                os.close(file)
                raise
        except BaseException:
            os.close(file)
            raise
        os.close(file)


def _lock(file: int, path: Path, to_write: bool) -> None:
    try:
        import fcntl
    except ImportError:  # Windows: no lock, so two processes can write the same file
        return
    try:
        fcntl.flock(file, (fcntl.LOCK_EX if to_write else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except OSError as error:
        hint = "Wait for it or choose another --output" if to_write else "Wait for it"
        raise UserError(f"{path} is being written by another process", hint) from error
