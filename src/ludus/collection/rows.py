"""Rows of a dataset, read as a stream: a million rows cost what one row costs.

A survey reads everything once before the run, so that a bad row is reported with its file, line and field while
nothing has been spent yet; the run then reads the rows again, one at a time. Rows that are generated, or come through a
pipe, are kept in a temporary file meanwhile: they come once, and never while rollouts are waiting.
"""

from __future__ import annotations

import itertools
import os
import stat
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import orjson
from pydantic import ValidationError

from ludus.dataset import Generated
from ludus.errors import UserError
from ludus.runtime.boundary import is_interrupt
from ludus.runtime.imports import describe
from ludus.task import Task, digest, private

#: As many brackets as a line may have without being nested too deep, however they stand.
_SURELY_SHALLOW = 200

ReadTask = Callable[[dict[str, Any]], Task]


@dataclass
class Survey:
    """What a first reading found: how many rows there are and a digest of their content."""

    rows: int
    digest: str


class Rows:
    """The rows of a JSONL file (`-` is standard input), of any iterable or of a dataset that is generated, as tasks.

    Iterate it as often as you like.
    """

    def __init__(
        self,
        source: str | Path | Iterable[dict[str, Any]] | Generated,
        read_task: ReadTask,
        limit: int | None = None,
        seed: int = 0,
    ) -> None:
        self.source = _source(source, limit)
        self._comes_once = isinstance(self.source, Path) and _is_stream(self.source)
        if isinstance(self.source, Generated):
            self.name = self.source.name
        else:  # a pipe has another name every time
            self.name = "rows" if isinstance(self.source, list) or self._comes_once else str(self.source)
        self._read_task = read_task
        self._limit = limit
        self._seed = seed
        self._kept: Path | None = None

    def survey(self, tick: Callable[[int], None] = lambda _: None) -> Survey:
        """Check every row and take the digest of all. `tick` is told how many rows were read."""
        if isinstance(self.source, Generated) and self._limit is None:
            raise UserError(f"dataset {self.name} has no end", "Say how many rows to use: --limit N")
        seen, count = blake2b(digest_size=16), 0
        for count, (where, line) in enumerate(self._lines(), start=1):
            seen.update(line.strip())
            seen.update(b"\n")
            self._task(where, _shallow(where, line, parse(where, line)))
            if count % 1000 == 0:
                tick(count)
        if count == 0:
            raise UserError(f"{self.name} holds no rows")
        return Survey(count, seen.hexdigest())

    def __iter__(self) -> Iterator[tuple[str, dict[str, Any], Task]]:
        """A task's id, its row, and the task for one session. The id is the row's `task_id`, or else its digest."""
        names = Names()
        for where, row in self._rows():
            named = row.get("task_id")
            try:
                name = names.new(str(named) if isinstance(named, (str, int)) else digest(row))
            except TypeError as error:
                raise _not_writable(where, error) from error
            yield name, row, self._task(where, private(row))

    def _task(self, where: str, row: dict[str, Any]) -> Task:
        try:
            return self._read_task(row)
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(str(step) for step in first["loc"]) or "row"
            raise UserError(f"{where}: {field}: {first['msg']}", "Fix the row or leave it out") from error
        except UserError as error:
            raise UserError(f"{where}: {error}") from error
        except BaseException as error:  # of a validator that an author wrote
            if is_interrupt(error):
                raise
            raise UserError(f"{where}: {describe(error)}", "Add --debug to see more") from error

    def _rows(self) -> Iterator[tuple[str, dict[str, Any]]]:
        if isinstance(self.source, list):
            for index, row in enumerate(self.source[: self._limit]):
                yield f"row {index}", row
        else:
            for where, line in self._lines():
                yield where, parse(where, line)

    def _lines(self) -> Iterator[tuple[str, bytes]]:
        source = self.source
        if isinstance(source, list):
            given = ((f"row {index}", row) for index, row in enumerate(source))
            return itertools.islice(_encoded(given), self._limit)
        if self._kept is not None:
            return self._read(self._kept)
        if isinstance(source, Generated):
            made = enumerate(source.rows(self._seed), start=1)
            return self._keep(_encoded((f"{self.name}:{number}", row) for number, row in made))
        if self._comes_once:
            return self._keep(self._read(source))
        return itertools.islice(self._read(source), self._limit)

    def _keep(self, lines: Iterator[tuple[str, bytes]]) -> Iterator[tuple[str, bytes]]:
        """Lines that come only once, kept for later when the last of them has come."""
        try:
            handle, name = tempfile.mkstemp(prefix="ludus-rows-")
            weakref.finalize(self, Path(name).unlink, missing_ok=True)
            with os.fdopen(handle, "wb") as file:
                for where, line in itertools.islice(lines, self._limit):
                    file.write(line.rstrip(b"\n") + b"\n")
                    yield where, line
        except OSError as error:
            cause = f"cannot keep the rows in {tempfile.tempdir or 'a temporary file'}: {error.strerror}"
            raise UserError(cause, "Set TMPDIR to a folder with more room") from error
        self._kept = Path(name)

    def _read(self, path: Path) -> Iterator[tuple[str, bytes]]:
        try:
            with path.open("rb") as file:
                for number, line in enumerate(file, start=1):
                    if not line.isspace():
                        yield f"{path}:{number}", line
        except OSError as error:
            raise UserError(f"cannot read {path}: {error.strerror}") from error


def _source(
    given: str | Path | Iterable[dict[str, Any]] | Generated, limit: int | None
) -> Path | list[Any] | Generated:
    if isinstance(given, (str, Path)):
        return Path("/dev/stdin") if str(given) == "-" else Path(given)
    if isinstance(given, (list, Generated)):
        return given
    if isinstance(given, dict) or not isinstance(given, Iterable):
        raise UserError(f"rows must be a file or a list of objects, not {given!r:.60}", "Example: input=[row]")
    return list(itertools.islice(given, limit))


def _is_stream(path: Path) -> bool:
    """Whether it can be read only once: a pipe, or a terminal."""
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def _encoded(rows: Iterable[tuple[str, Any]]) -> Iterator[tuple[str, bytes]]:
    for where, row in rows:
        try:
            line = orjson.dumps(row)
        except TypeError as error:
            raise UserError(f"{where}: {error}", "Each row must be an object as JSON knows it") from error
        yield where, line


def _shallow(where: str, line: bytes, row: dict[str, Any]) -> dict[str, Any]:
    """A row that can be written again: what can be read may be nested deeper than what can be written."""
    if line.count(b"[") + line.count(b"{") > _SURELY_SHALLOW:
        try:
            digest(row)
        except TypeError as error:
            raise _not_writable(where, error) from error
    return row


def _not_writable(where: str, error: TypeError) -> UserError:
    return UserError(f"{where}: nested too deep: {error}", "Fix the row or leave it out")


class Names:
    """Gives names that came before a suffix."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}  # names that came more than once
        self._seen: set[int] = set()  # a number costs a fifth of what its text costs

    def new(self, name: str) -> str:
        """A name that no other has."""
        key, counts = hash(name), self._counts
        if key in self._seen:
            count = counts.get(name, 1) + 1
            while (key := hash(f"{name}.{count}")) in self._seen:  # a row may be called like that by itself
                count += 1
            counts[name] = count
            name = f"{name}.{count}"
        self._seen.add(key)
        return name


def parse(where: str, line: bytes) -> dict[str, Any]:
    """The JSON object of a line, or a user's mistake that names the line."""
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise UserError(f"{where}: not JSON: {error}", "Each line must hold one JSON object") from error
    if not isinstance(row, dict):
        raise UserError(f"{where}: not a JSON object", "Each line must hold one JSON object")
    return row
