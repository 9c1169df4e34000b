"""Rows of a dataset, read as a stream: a million rows cost what one row costs.

A survey reads everything once before the run, so that a bad row is reported with its file, line and field while
nothing has been spent yet; the run then reads the rows again, one at a time. Rows that are generated are kept in a
temporary file meanwhile: they are made once, and never while rollouts are waiting.
"""

from __future__ import annotations

import itertools
import os
import tempfile
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import orjson
from pydantic import ValidationError

from ludus.dataset import Generated
from ludus.errors import UserError
from ludus.task import Task, digest

ReadTask = Callable[[dict[str, Any]], Task]


@dataclass
class Survey:
    """What a first reading found: how many rows there are and a digest of their content."""

    rows: int
    digest: str


class Rows:
    """The rows of a JSONL file, of a list or of a generator, as tasks. Iterate it as often as you like."""

    def __init__(
        self,
        source: str | Path | list[dict[str, Any]] | Generated,
        read_task: ReadTask,
        limit: int | None = None,
        seed: int = 0,
    ) -> None:
        self.source = Path(source) if isinstance(source, str) else source
        self.name = (
            source.name if isinstance(source, Generated) else "rows" if isinstance(source, list) else str(source)
        )
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
            self._task(where, parse(where, line))
            if count % 1000 == 0:
                tick(count)
        if count == 0:
            raise UserError(f"{self.name} holds no rows")
        return Survey(count, seen.hexdigest())

    def __iter__(self) -> Iterator[tuple[str, dict[str, Any], Task]]:
        """A task's id, its row and the task. An id is the row's own `task_id`, or else a digest of its content."""
        names = Names()
        for where, row in self._rows():
            named = row.get("task_id")
            name = names.new(str(named) if isinstance(named, (str, int)) else digest(row))
            yield name, row, self._task(where, row)

    def _task(self, where: str, row: dict[str, Any]) -> Task:
        try:
            return self._read_task(row)
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(str(step) for step in first["loc"]) or "row"
            raise UserError(f"{where}: {field}: {first['msg']}", "Fix the row or leave it out") from error
        except UserError as error:
            raise UserError(f"{where}: {error}") from error

    def _rows(self) -> Iterator[tuple[str, dict[str, Any]]]:
        if isinstance(self.source, list):
            for index, row in enumerate(self.source[: self._limit]):
                yield f"row {index}", row
        else:
            for where, line in self._lines():
                yield where, parse(where, line)

    def _lines(self) -> Iterator[tuple[str, bytes]]:
        if isinstance(self.source, list):
            encoded = ((f"row {index}", orjson.dumps(row)) for index, row in enumerate(self.source))
            return itertools.islice(encoded, self._limit)
        if isinstance(self.source, Generated):
            return self._generate(self.source) if self._kept is None else self._read(self._kept)
        return itertools.islice(self._read(self.source), self._limit)

    def _generate(self, source: Generated) -> Iterator[tuple[str, bytes]]:
        """Make the rows, and keep them once all are made."""
        handle, name = tempfile.mkstemp(prefix="ludus-rows-")
        weakref.finalize(self, Path(name).unlink, missing_ok=True)
        with os.fdopen(handle, "wb") as file:
            for number, row in enumerate(itertools.islice(source.rows(self._seed), self._limit), start=1):
                line = orjson.dumps(row)
                file.write(line + b"\n")
                yield f"{self.name}:{number}", line
        self._kept = Path(name)

    def _read(self, path: Path) -> Iterator[tuple[str, bytes]]:
        try:
            with path.open("rb") as file:
                for number, line in enumerate(file, start=1):
                    if not line.isspace():
                        yield f"{path}:{number}", line
        except OSError as error:
            raise UserError(f"cannot read {path}: {error.strerror}") from error


class Names:
    """Gives names that came before a suffix."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}  # names that came more than once
        self._seen: set[int] = set()  # a number costs a fifth of what its text costs

    def new(self, name: str) -> str:
        """A name that no other has."""
        key, counts = hash(name), self._counts
        if key in self._seen:
            counts[name] = counts.get(name, 1) + 1
            name = f"{name}.{counts[name]}"
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
