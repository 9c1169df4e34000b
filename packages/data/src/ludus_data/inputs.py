"""The rows of several files, one file after another, with the progress of reading."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ludus.data.row_checks import unambiguous_row
from ludus.data.sources import read_lines
from ludus.errors import UserError
from ludus.record import Row
from ludus.runtime.numbers import whole_number
from ludus.store.files import Files

#: The number of rows between two calls of `tick`.
_TICK_EVERY = 256

#: Files whose size is the sum of their rows' bytes. For other formats the progress is unknown.
_PLAIN = (".jsonl", ".ndjson", ".json")


@dataclass
class ReadingProgress:
    """The rows read so far, their bytes, and the share of the files; None if it is unknown."""

    rows: int
    bytes: int
    share: float | None


Tick = Callable[[ReadingProgress], None]


class Inputs:
    """Files of rows. `-` is standard input; the folder of a collection means its rollouts.

        for where, row in Inputs(["a.jsonl", "b.jsonl"]).rows():
            ...

    `passes` is how often the files will be read; a pipe can be read only once. `tick` is called with the progress.
    """

    def __init__(self, paths: Sequence[str | Path], tick: Tick = lambda _: None, passes: int = 1) -> None:
        if not paths:
            raise UserError("no file of rows is named", "Example: train.jsonl")
        self.paths = [_file(path) for path in paths]
        self._tick = tick
        sizes = [_size(path, passes) for path in self.paths]
        known = [size for size in sizes if size is not None]
        self._total = passes * sum(known) if len(known) == len(sizes) else None
        self._rows = self._bytes = 0

    def lines(self, path: Path | None = None) -> Iterator[tuple[str, bytes]]:
        """The lines of one file or of all files, each with its place (`FILE:LINE`). Raises if there are none."""
        any_rows = False
        for file in self.paths if path is None else [path]:
            for where, line in read_lines(file):
                any_rows = True
                self._rows += 1
                self._bytes += len(line)
                if self._rows % _TICK_EVERY == 0:
                    self._tick(self._progress())
                yield where, line
        if not any_rows:
            empty = ", ".join(map(str, self.paths if path is None else [path]))
            raise UserError(f"{empty} holds no rows", "Name a file that holds some")

    def rows(self, path: Path | None = None) -> Iterator[tuple[str, Row]]:
        """The rows of one file or of all files. A line that is no JSON object, or has a key twice, is a `BadRow`."""
        for where, line in self.lines(path):
            yield where, unambiguous_row(where, line)

    def _progress(self) -> ReadingProgress:
        share = min(self._bytes / self._total, 1.0) if self._total else None
        return ReadingProgress(self._rows, self._bytes, share)


def file_and_line(where: str) -> tuple[str, int | None]:
    """The two parts of a place: `data/train.jsonl:7` is line 7 of data/train.jsonl."""
    file, _, line = where.rpartition(":")
    number = whole_number(line)
    return (file, number) if file and number is not None else (where, None)


def ends_with_newline(line: bytes) -> bytes:
    """The line as a file of rows holds it."""
    return line if line.endswith(b"\n") else line + b"\n"


def _file(source: str | Path) -> Path:
    if str(source) == "-":
        return Path("/dev/stdin")
    path = Path(source)
    if path.is_dir():
        rollouts = Files.of(path).rollouts
        if not rollouts.is_file():
            raise UserError(f"{path} is a folder without {rollouts.name}", "Name a file of rows")
        return rollouts
    return path


def _size(path: Path, passes: int) -> int | None:
    """The bytes of a file, if they are the bytes of its rows. Refuses a pipe that would be read twice."""
    try:
        status = os.stat(path)
    except OSError:  # reading it will say why
        return None
    if passes > 1 and not stat.S_ISREG(status.st_mode):
        raise UserError(f"{path} can be read only once, and its rows are needed {passes} times", "Name a file")
    return status.st_size if path.suffix in _PLAIN and stat.S_ISREG(status.st_mode) else None
