"""Reading a JSONL file by line, with line numbers, or by blocks of lines that another process can read."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Self

from ludus.errors import UserError, cannot_read
from ludus.runtime.formats import refuse_all_but_json_lines


class Block(NamedTuple):
    """Whole lines of a file: byte offset, length in bytes, and the line number of the first."""

    offset: int
    length: int
    number: int

    def read(self, path: Path) -> bytes:
        """The bytes of the block."""
        with path.open("rb") as file:
            file.seek(self.offset)
            return file.read(self.length)


class Source:
    """Reads a file, or one block of it, once. `lines` and `take_block` advance the same position."""

    def __init__(self, path: Path, block: Block | None = None) -> None:
        self.path = path
        try:
            self._file = path.open("rb", buffering=1 << 18)
            size = os.fstat(self._file.fileno()).st_size
            self._position, self._end, self._number = block if block is not None else Block(0, size, 1)
            if block is not None:
                self._end += self._position
                self._file.seek(self._position)
            else:
                refuse_all_but_json_lines(path, self._file)
        except OSError as error:
            raise self._read_error(error) from error
        self._bounded = block is not None
        self._start = 0  # of the last line
        self.lines = self._lines()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._file.close()

    @property
    def bytes_left(self) -> int:
        """How many bytes are left, according to the size of the file when it was opened."""
        return self._end - self._position

    @property
    def share(self) -> float:
        """The share that has been read, from 0 to 1."""
        return min(self._position / self._end, 1.0) if self._end else 0.0

    def lines_with_offsets(self) -> Iterator[tuple[int, int, bytes]]:
        """The lines that are not blank, each with its line number and its byte offset in the file."""
        for number, line in self.lines:
            yield number, self._start, line

    def take_block(self, size: int) -> Block | None:
        """Skip whole lines of about `size` bytes and return their block; None at the end."""
        try:
            data = self._file.read(size) + self._file.readline()
        except OSError as error:
            raise self._read_error(error) from error
        block = Block(self._position, len(data), self._number)
        self._position += len(data)
        self._number += data.count(b"\n")
        return block if data else None

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        """The lines that are not blank, each with its line number. Every line ends with a newline."""
        try:
            for line in self._file:
                number = self._number
                self._number += 1
                self._start = self._position
                self._position += len(line)
                if not line.isspace():
                    yield number, line if line.endswith(b"\n") else line + b"\n"
                if self._bounded and self._position >= self._end:
                    return
        except OSError as error:
            raise self._read_error(error) from error

    def _read_error(self, error: OSError) -> UserError:
        return cannot_read(self.path, error)
