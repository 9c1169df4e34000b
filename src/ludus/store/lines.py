"""Reading a file of JSON lines, with line numbers, or by blocks of lines that another process can read.

`Source` reads any such file. `StoredLines` reads a journal of a run: it knows which line counts (see `counting`), and
leaves a torn last line out.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import IO, NamedTuple, Self

from ludus.errors import cannot_read
from ludus.runtime.formats import refuse_all_but_json_lines
from ludus.runtime.regular_files import open_regular
from ludus.store.counting import SeenRollouts
from ludus.store.parsing import is_torn

_BUFFER = 1 << 18


class Block(NamedTuple):
    """Whole lines of a file: byte offset, length in bytes, and the line number of the first.

    `duplicates` are the numbers of lines that do not count. A process that has no access to the file as it was gets
    the `lines` with it.
    """

    offset: int
    length: int
    number: int
    duplicates: tuple[int, ...] = ()
    lines: bytes | memoryview | None = None

    def read(self, path: Path) -> bytes:
        """The bytes of the block."""
        with open_regular(path) as file:
            file.seek(self.offset)
            return file.read(self.length)


class Source:
    """Reads a file, or one block of it, once. `lines` and `take_block` advance the same position."""

    def __init__(self, path: Path, block: Block | None = None) -> None:
        self.path = path
        self._file: IO[bytes]
        self._position, self._end, self._number = 0, 0, 1
        try:
            if block is not None and block.lines is not None:
                self._file = io.BytesIO(block.lines)
                self._end, self._number = len(block.lines), block.number
            else:
                self._file = open_regular(path, _BUFFER)
                self._end = os.fstat(self._file.fileno()).st_size
                if block is None:
                    refuse_all_but_json_lines(path, self._file)
                else:
                    self._position, self._number = block.offset, block.number
                    self._end = block.offset + block.length
                    self._file.seek(self._position)
        except OSError as error:
            raise cannot_read(path, error) from error
        self.size = self._end
        self._bounded = block is not None
        self._start = self._position  # of the last line
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

    @property
    def offset(self) -> int:
        """The byte offset of the last line in the file."""
        return self._start

    @property
    def position(self) -> tuple[int, int]:
        """The byte offset and the number of the next line."""
        return self._position, self._number

    def take_block(self, size: int) -> Block | None:
        """Skip whole lines of about `size` bytes and return their block; None at the end."""
        data = self._take(size)
        if not data:
            return None
        block = Block(self._position, len(data), self._number)
        self._position += len(data)
        self._number += data.count(b"\n")
        return block

    def read_at(self, offset: int, length: int) -> bytes:
        """So many bytes from an offset on, of the file as it was opened. Threads may call it at the same time."""
        try:
            return os.pread(self._file.fileno(), length, offset)
        except OSError as error:
            raise cannot_read(self.path, error) from error

    def _take(self, size: int) -> bytes:
        try:
            return self._file.read(size) + self._file.readline()
        except OSError as error:
            raise cannot_read(self.path, error) from error

    def _lines(self) -> Iterator[tuple[int, bytes]]:
        """The lines that are not blank, each with its line number. Every line ends with a newline."""
        try:
            for line in self._file:
                number = self._number
                self._number += 1
                self._start = self._position
                self._position += len(line)
                if not line.isspace():
                    if not line.endswith(b"\n"):
                        if self._is_left_out(number, line):
                            return
                        line += b"\n"
                    yield number, line
                if self._bounded and self._position >= self._end:
                    return
        except OSError as error:
            raise cannot_read(self.path, error) from error

    def _is_left_out(self, number: int, line: bytes) -> bool:
        """Whether a last line without a newline is left out."""
        return False


class StoredLines(Source):
    """The lines of a journal. Iterating, and `take_block`, pass over blank lines and a torn last line.

        with StoredLines(run.files.rollouts) as lines:
            for number, line, counts in lines:

    Without `counting`, every line counts: the caller knows better. `duplicates` counts the lines that do not count,
    `torn` is the number of a torn line, or 0.
    """

    def __init__(self, path: Path, block: Block | None = None, *, counting: bool = True) -> None:
        super().__init__(path, block)
        self._known = frozenset(block.duplicates) if block is not None else None if counting else frozenset[int]()
        self.duplicates = self.torn = 0
        self._numbered = ((number, line, self.counts(number, line)) for number, line in self.lines)

    @cached_property
    def seen(self) -> SeenRollouts:
        """The rollouts so far. The reader of a block needs none: the block says which of its lines are duplicates."""
        return SeenRollouts()

    def __iter__(self) -> Iterator[tuple[int, bytes, bool]]:
        """Each line with its number, and whether it counts. Every line ends with a newline."""
        return self._numbered

    def counted(self) -> Iterator[tuple[int, bytes]]:
        """The lines that count, each with its number."""
        counts = self.counts
        return (numbered for numbered in self.lines if counts(*numbered))

    def counts(self, number: int, line: bytes) -> bool:
        """Whether the line that `lines` gave last counts. Ask once for each line."""
        known = self._known
        if self.seen.is_first(line) if known is None else number not in known:
            return True
        self.duplicates += 1
        return False

    def take_block(self, size: int, *, with_lines: bool = False) -> Block | None:
        """Skip whole lines of about `size` bytes and return their block; None at the end."""
        data = self._take(size)
        if data and not data.endswith(b"\n"):
            end = data.rfind(b"\n") + 1
            if not data[end:].isspace() and is_torn(data[end:]):
                data, self.torn = data[:end], self._number + data.count(b"\n")
        if not data:
            return None
        is_first, duplicates, begin, number = self.seen.is_first, list[int](), 0, self._number
        while begin < len(data):
            end = data.find(b"\n", begin) + 1 or len(data)
            if not is_first(data, begin, end):
                duplicates.append(number)
            begin, number = end, number + 1
        block = Block(self._position, len(data), self._number, tuple(duplicates), data if with_lines else None)
        self._position += len(data)
        self._number = number
        return block

    def _is_left_out(self, number: int, line: bytes) -> bool:
        if not is_torn(line):
            return False
        self.torn, self._position, self._number = number, self._start, number
        return True
