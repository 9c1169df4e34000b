"""Rows of a CSV file: the first line names the columns, and every value stays text."""

from __future__ import annotations

import csv
import io
import itertools
from collections import Counter
from collections.abc import Iterator

import orjson

from ludus.data.line_ends import skip_blank_lines
from ludus.errors import UserError

#: A row over more lines than this has a quote that is never closed.
_MAX_LINES = 100_000

#: After this many blank lines, the following ones are skipped at once.
_BLANKS = 64

_QUOTES = 'Check the quotes: a text with a comma or a quote is written as "a, ""b"""'


def csv_lines(name: str, file: io.BufferedReader, delimiter: str | None, max_size: int) -> Iterator[tuple[str, bytes]]:
    """The rows of a CSV file with their places. Without a delimiter, the header decides: comma, else tab or semicolon.

    Blank lines are left out. A row with more or fewer values than there are columns is refused.
    """
    if csv.field_size_limit() < max_size:  # a setting of the whole process, 128 KB by default
        csv.field_size_limit(max_size)
    lines = _Lines(name, file, max_size)
    header = lines.readline()
    delimiter = delimiter or next((mark for mark in (",", "\t", ";") if mark in header), ",")
    reader = csv.reader(itertools.chain([header], lines), delimiter=delimiter, strict=True)
    columns: list[str] | None = None
    start, blanks = 1, 0
    while True:
        try:
            values = next(reader, None)
        except csv.Error as error:
            raise UserError(f"{name}:{start}: not CSV: {error}", _QUOTES) from error
        if values is None:
            return
        where, start = f"{name}:{start}", lines.number + 1
        lines.row_end = lines.number
        if not values:
            blanks += 1
            if blanks >= _BLANKS:
                lines.skip_blank()
                start = lines.number + 1
            continue
        blanks = 0
        if columns is None:
            columns = _columns(where, values)
        elif len(values) != len(columns):
            raise UserError(f"{where}: {len(values)} values for {len(columns)} columns", _QUOTES)
        else:
            yield where, orjson.dumps(dict(zip(columns, values, strict=True)))


class _Lines:
    """Lines of text. A line that is not UTF-8 or too long is refused with its number."""

    def __init__(self, name: str, file: io.BufferedReader, max_size: int) -> None:
        self._name, self._file, self._max_size = name, file, max_size
        self.number = 0  # of the last line
        self.row_end = 0  # the last line of the previous row

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        if line := self.readline():
            return line
        raise StopIteration

    def skip_blank(self) -> None:
        """Skip the blank lines that follow a row."""
        self.number += skip_blank_lines(self._file)
        self.row_end = self.number

    def readline(self) -> str:
        """The next line; empty at the end."""
        line = self._file.readline(self._max_size + 1)
        self.number += 1
        if self.number - self.row_end > _MAX_LINES:
            where = f"{self._name}:{self.row_end + 1}"
            raise UserError(f"{where}: a quote is not closed within {_MAX_LINES:,} lines", _QUOTES)
        if len(line) > self._max_size:
            where = f"{self._name}:{self.number}"
            raise UserError(f"{where}: the line is longer than {self._max_size:,} bytes", "Check the quotes")
        try:
            return line.decode()
        except UnicodeDecodeError as error:
            cause = f"{self._name}:{self.number}: not UTF-8: {error.reason} at byte {error.start + 1} of the line"
            raise UserError(cause, "Convert the file: iconv -f LATIN1 -t UTF-8 FILE > NEW") from error


def _columns(where: str, names: list[str]) -> list[str]:
    for name, count in Counter(names).items():
        if not name.strip():
            raise UserError(f"{where}: a column has no name", "Name every column in the first line")
        if count > 1:
            raise UserError(f"{where}: {count} columns are called {name:.60}", "Rename all but one")
    return names
