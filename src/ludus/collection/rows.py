"""Rows of a dataset, read as a stream: a million rows cost what one row costs.

A survey reads everything once before the run, so that a bad row is reported with its file, line and field while
nothing has been spent yet; the run then reads the rows again, one at a time.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import orjson
from pydantic import ValidationError

from ludus.errors import UserError
from ludus.task import Task, digest

ReadTask = Callable[[dict[str, Any]], Task]


@dataclass
class Survey:
    """What a first reading found: how many rows there are and a digest of their content."""

    rows: int
    digest: str


class Rows:
    """The rows of a JSONL file or of a list, as tasks. Iterate it as often as you like."""

    def __init__(
        self, source: str | Path | list[dict[str, Any]], read_task: ReadTask, limit: int | None = None
    ) -> None:
        self.source = source if isinstance(source, list) else Path(source)
        self.name = "rows" if isinstance(source, list) else str(source)
        self._read_task = read_task
        self._limit = limit

    def survey(self, tick: Callable[[int], None] = lambda _: None) -> Survey:
        """Check every row and take the digest of all. `tick` is told how many rows were read."""
        seen, count = blake2b(digest_size=16), 0
        for count, (where, line) in enumerate(self._lines(), start=1):
            seen.update(line.strip())
            seen.update(b"\n")
            self._task(where, _parse(where, line))
            if count % 1000 == 0:
                tick(count)
        if count == 0:
            raise UserError(f"{self.name} holds no rows")
        return Survey(count, seen.hexdigest())

    def __iter__(self) -> Iterator[tuple[str, dict[str, Any], Task]]:
        """A task's id, its row and the task. An id is the row's own `task_id`, or else a digest of its content."""
        counts: dict[str, int] = {}  # ids that came more than once
        seen: set[int] = set()  # a number costs a fifth of what its text costs
        for where, row in self._rows():
            named = row.get("task_id")
            name = str(named) if isinstance(named, (str, int)) else digest(row)
            key = hash(name)
            if key in seen:
                counts[name] = counts.get(name, 1) + 1
                name = f"{name}.{counts[name]}"
            seen.add(key)
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
            yield from ((f"row {index}", row) for index, row in enumerate(self.source[: self._limit]))
        else:
            yield from ((where, _parse(where, line)) for where, line in self._lines())

    def _lines(self) -> Iterator[tuple[str, bytes]]:
        if isinstance(self.source, list):
            encoded = ((f"row {index}", orjson.dumps(row)) for index, row in enumerate(self.source))
            return itertools.islice(encoded, self._limit)
        return itertools.islice(self._read(self.source), self._limit)

    def _read(self, path: Path) -> Iterator[tuple[str, bytes]]:
        try:
            with path.open("rb") as file:
                for number, line in enumerate(file, start=1):
                    if not line.isspace():
                        yield f"{path}:{number}", line
        except OSError as error:
            raise UserError(f"cannot read {path}: {error.strerror}") from error


def _parse(where: str, line: bytes) -> dict[str, Any]:
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise UserError(f"{where}: not JSON: {error}", "Each line must hold one JSON object") from error
    if not isinstance(row, dict):
        raise UserError(f"{where}: not a JSON object", "Each line must hold one JSON object")
    return row
