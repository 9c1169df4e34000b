"""Append-only journals: killed at any moment, a collection has lost nothing it had finished.

A line is written with one system call and never touched again. What a kill or a full disk left of a last line is
cut off when the journal is opened next, and at once where we are still alive to see it. One process at a time may
hold a journal.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import orjson

from ludus.errors import UserError


class Journal:
    """A JSONL file that is only ever appended to. `hint` is what to do when that is not possible any more.

    with Journal(path) as journal:
        journal.append(rollout.encode())
    """

    def __init__(self, path: Path, hint: str = "What was finished is safe: make room, then use --resume") -> None:
        self.path = path
        self._hint = hint
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise UserError(f"cannot write {path}: {error.strerror}", "Choose another --output") from error
        self._lock()
        self._size = self._repair()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def empty(self) -> bool:
        """Whether nothing was written yet."""
        return self._size == 0

    def append(self, line: bytes) -> None:
        """Write one line, whole or not at all."""
        data = line + b"\n"
        try:
            written = os.pwrite(self._file, data, self._size)
            while written < len(data):
                written += os.pwrite(self._file, data[written:], self._size + written)
        except OSError as error:
            os.ftruncate(self._file, self._size)
            raise self._cannot_write(error) from error
        self._size += len(data)

    def read(self) -> Iterator[dict[str, Any]]:
        """Every row written so far."""
        return (row for _, row in self.places())

    def places(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Every row written so far, and where it is."""
        place = 0
        with self.path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                try:
                    yield place, orjson.loads(line)
                except orjson.JSONDecodeError as error:
                    raise UserError(
                        f"{self.path}:{number}: not JSON: {error}", "Remove the line, then use --resume"
                    ) from error
                place += len(line)

    def at(self, place: int) -> dict[str, Any]:
        """The row at a place."""
        with self.path.open("rb") as file:
            file.seek(place)
            row: dict[str, Any] = orjson.loads(file.readline())
        return row

    def clear(self) -> None:
        """Forget everything."""
        os.ftruncate(self._file, 0)
        self._size = 0

    def close(self) -> None:
        """Make it durable and let go of it."""
        if self._file >= 0:
            file, self._file = self._file, -1
            try:
                os.fsync(file)
            except OSError as error:
                raise self._cannot_write(error) from error
            finally:
                os.close(file)

    def _cannot_write(self, error: OSError) -> UserError:
        return UserError(f"cannot write {self.path}: {error.strerror}", self._hint)

    def _lock(self) -> None:
        try:
            import fcntl
        except ImportError:  # no such locks on this system: two writers are the user's own risk
            return
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._file)
            raise UserError(
                f"{self.path} is being written by another collection", "Wait for it or choose another --output"
            ) from error

    def _repair(self) -> int:
        """Cut off a torn last line and return the size of what is whole."""
        size = end = os.fstat(self._file).st_size
        while end > 0:
            start = max(0, end - 65536)
            newline = os.pread(self._file, end - start, start).rfind(b"\n")
            if newline >= 0:
                end = start + newline + 1
                break
            end = start
        if end < size:
            os.ftruncate(self._file, end)
        return end


def write_whole(path: Path, data: bytes) -> None:
    """Replace a file so that a reader sees the old content or the new, never a part."""
    draft = path.with_name(path.name + ".part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with draft.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
        raise UserError(f"cannot write {path}: {error.strerror}", "Make room or choose another --output") from error
