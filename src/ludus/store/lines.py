"""The lines of a file, one by one with their numbers, or in blocks that another process can read for itself."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Self

from ludus.errors import UserError


class Block(NamedTuple):
    """Whole lines in the middle of a file: where they are, and the number of the first."""

    offset: int
    length: int
    number: int

    def read(self, path: Path) -> bytes:
        """The lines as they stand."""
        with path.open("rb") as file:
            file.seek(self.offset)
            return file.read(self.length)


class Source:
    """A file, or a block of one, that is read once. `lines` and `block` share what is left of it."""

    def __init__(self, path: Path, block: Block | None = None) -> None:
        self.path = path
        try:
            self._file = path.open("rb", buffering=1 << 18)
            size = os.fstat(self._file.fileno()).st_size
            self._at, self._end, self._number = block if block is not None else Block(0, size, 1)
            if block is not None:
                self._end += self._at
                self._file.seek(self._at)
        except OSError as error:
            raise self._unreadable(error) from error
        self._bounded = block is not None
        self.lines = self._lines()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._file.close()

    @property
    def left(self) -> int:
        """How many bytes are left, as far as that is known."""
        return self._end - self._at

    @property
    def share(self) -> float:
        """How much of it has been read, from 0 to 1."""
        return min(self._at / self._end, 1.0) if self._end else 0.0

    def block(self, size: int) -> Block | None:
        """Take about `size` bytes of whole lines, unread; None when nothing is left."""
        try:
            data = self._file.read(size) + self._file.readline()
        except OSError as error:
            raise self._unreadable(error) from error
        block = Block(self._at, len(data), self._number)
        self._at += len(data)
        self._number += data.count(b"\n")
        return block if data else None

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        """The lines that hold anything, with their numbers and their ends."""
        try:
            for line in self._file:
                number = self._number
                self._number += 1
                self._at += len(line)
                if not line.isspace():
                    yield number, line if line.endswith(b"\n") else line + b"\n"
                if self._bounded and self._at >= self._end:
                    return
        except OSError as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: OSError) -> UserError:
        return UserError(f"cannot read {self.path}: {error.strerror}")
