"""The rows of a dataset, read as a stream: memory does not grow with the number of rows.

A survey reads all rows before the run and reports a bad row with its file, line and field, before any model call. The
run then reads the rows again, one at a time. Generated rows and rows from a pipe can be read only once: the survey
copies them to a temporary file, and the run reads that file.
"""

from __future__ import annotations

import itertools
import os
import stat
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import orjson

from ludus.data.hub import HubReference, is_hub
from ludus.data.mixing import check_mix, turns
from ludus.data.row_checks import ReadTask, checked_task, parse_row, row_digest, writable_row
from ludus.data.row_typos import RowTypos
from ludus.data.shards import Shard, Split
from ludus.data.sources import read_lines, resolve
from ludus.dataset import Generated
from ludus.errors import UserError
from ludus.runtime.encoding import encode
from ludus.task import Task, private

#: The survey remembers this many names of tools; a dataset may list any number.
_MOST_TOOL_NAMES = 10_000

_PlacedRow = tuple[str, dict[str, Any]]
Fill = Callable[[dict[str, Any]], dict[str, Any]]


@dataclass
class Survey:
    """The result of the first reading: the number of rows, a digest of their content, and the rows in the shard."""

    rows: int
    digest: str
    in_shard: int


class Rows:
    """The rows of a source (see `read_lines`), of an iterable or of a generated dataset, as tasks.

    Can be iterated any number of times. `fill` adds the prompt to a row that has none. If `shard` is set, iterating
    yields only the tasks of that shard. `revision` is the commit of a dataset on the hub, set by the first reading.
    """

    shard: Shard | None = None
    revision: str | None = None

    def __init__(
        self,
        source: str | Path | Iterable[dict[str, Any]] | Generated,
        read_task: ReadTask,
        limit: int | None = None,
        seed: int = 0,
        fill: Fill | None = None,
    ) -> None:
        self.source = _source(source, limit)
        self._one_pass = isinstance(self.source, Path) and _is_stream(self.source)
        if isinstance(self.source, Generated):
            self.name = self.source.name
        elif isinstance(self.source, str):  # the revision is a separate field
            self.name = str(HubReference.parse(self.source)._replace(revision=None))
        else:  # the name of a pipe differs in every run
            self.name = "rows" if isinstance(self.source, list) or self._one_pass else str(self.source)
        self._read_task = read_task
        self._fill = fill
        self._limit = limit
        self._seed = seed
        self._temporary_copy: Path | None = None
        self.offered_tools: set[str] = set()  #: the names of the tools that rows list, found by the survey
        self.warnings: list[str] = []  #: of the survey, such as a misspelled parameter

    def survey(self, tick: Callable[[int], None] = lambda _: None) -> Survey:
        """Check every row and compute the digest. Calls `tick` with the number of rows read, every 1000 rows."""
        self.check_end()
        content, count, typos = blake2b(digest_size=16), 0, RowTypos()
        split, in_shard = Split(self.shard), 0
        for count, (where, line) in enumerate(self._lines(), start=1):
            content.update(line.strip())
            content.update(b"\n")
            row = self._filled(where, writable_row(where, line))
            params = self._task(where, row).responses_create_params
            typos.look(where, params)
            if (tools := params.get("tools")) and len(self.offered_tools) < _MOST_TOOL_NAMES:
                self.offered_tools.update(name for tool in tools if isinstance(name := tool.get("name"), str))
            in_shard += self.shard is None or split.takes(self._id(where, row))
            if count % 1000 == 0:
                tick(count)
        if count == 0:
            raise self._no_rows()
        self.warnings = typos.warnings()
        return Survey(count, content.hexdigest(), in_shard)

    def check_end(self) -> None:
        """Refuse generated rows without a limit, if they never end."""
        if isinstance(self.source, Generated) and not self.source.ends and self._limit is None:
            raise UserError(f"dataset {self.name} is endless", "Say how many rows to use: --limit N")

    def __iter__(self) -> Iterator[tuple[str, dict[str, Any], Task]]:
        """Each task's id, row, and task for one session. The id is the row's `task_id`, or else the row's digest."""
        ids, split, read_task = UniqueIds(), Split(self.shard) if self.shard is not None else None, self._read_task
        for where, row in self._rows():
            id = self._id(where, row)
            task_id = ids.assign(id)
            if split is None or split.takes(id):
                yield task_id, row, checked_task(where, private(row), read_task)

    def encoded(self) -> Iterator[tuple[str, dict[str, Any], bytes]]:
        """Each task's id, row, and line of JSON, for a process that reads the task from the line."""
        ids, split = UniqueIds(), Split(self.shard)
        for where, line in self._lines():
            row = parse_row(where, line)
            filled = self._filled(where, row)
            id = self._id(where, filled)
            task_id = ids.assign(id)
            if split.takes(id):
                yield task_id, filled, line if filled is row else encode(filled)

    def nth(self, number: int, flag: str = "--row") -> tuple[dict[str, Any], Task]:
        """The row with a number, counted from 1, and its task for one session. Errors name the option `flag`."""
        count = 0
        for count, (_, row, task) in enumerate(self, start=1):
            if count == number:
                return row, task
        if count == 0:
            raise self._no_rows()
        raise UserError(f"{self.name} has no row {number}", f"Choose {flag} from 1 to {count}")

    def _no_rows(self) -> UserError:
        if isinstance(self.source, Generated):
            return UserError(f"dataset {self.name} holds no rows", "Let its function yield at least one row")
        hint = "Write one JSON object a line into it, or name another file with --input FILE"
        return UserError(f"{self.name} holds no rows", "Pass a row" if isinstance(self.source, list) else hint)

    def _id(self, where: str, row: dict[str, Any]) -> str:
        """The id of a row, which its duplicates share."""
        task_id = row.get("task_id")
        return str(task_id) if isinstance(task_id, (str, int)) else row_digest(where, row)

    def _task(self, where: str, row: dict[str, Any]) -> Task:
        return checked_task(where, row, self._read_task)

    def _rows(self) -> Iterator[tuple[str, dict[str, Any]]]:
        if isinstance(self.source, list):
            for number, row in enumerate(self.source[: self._limit], start=1):
                where = f"row {number}"
                yield where, row if self._fill is None else self._filled(where, row)
        else:
            for where, line in self._lines():
                row = parse_row(where, line)
                yield where, row if self._fill is None else self._filled(where, row)

    def _filled(self, where: str, row: dict[str, Any]) -> dict[str, Any]:
        """The row with its prompt."""
        if self._fill is None:
            return row
        try:
            return self._fill(row)
        except UserError as error:
            raise UserError(f"{where}: {error}") from error

    def _lines(self) -> Iterator[tuple[str, bytes]]:
        source = self.source
        if isinstance(source, list):
            numbered = ((f"row {number}", row) for number, row in enumerate(source, start=1))
            return itertools.islice(_encoded(numbered), self._limit)
        if self._temporary_copy is not None:
            return read_lines(self._temporary_copy)
        if isinstance(source, Generated):
            generated = enumerate(source.rows(self._seed), start=1)
            return self._copied(_encoded((f"{self.name}:{number}", row) for number, row in generated))
        if self._one_pass:
            return self._copied(read_lines(source))
        return itertools.islice(read_lines(self._pinned(source)), self._limit)

    def _pinned(self, source: str | Path) -> str | Path:
        """The source; a dataset on the hub at the commit of the first reading."""
        if isinstance(source, str) and self.revision is None:
            self.source = source = str(resolve(source))
            self.revision = HubReference.parse(source).revision
        return source

    def _copied(self, lines: Iterator[tuple[str, bytes]]) -> Iterator[tuple[str, bytes]]:
        """The same lines, copied to a temporary file that later iterations read."""
        try:
            handle, name = tempfile.mkstemp(prefix="ludus-rows-")
            weakref.finalize(self, Path(name).unlink, missing_ok=True)
            with os.fdopen(handle, "wb") as file:
                for where, line in itertools.islice(lines, self._limit):
                    file.write(line.rstrip(b"\n") + b"\n")
                    yield where, line
        except OSError as error:
            cause = f"cannot copy the rows to {tempfile.tempdir or 'a temporary file'}: {error.strerror}"
            raise UserError(cause, "Set TMPDIR to a folder with more room") from error
        self._temporary_copy = Path(name)


class MixedRows(Rows):
    """The rows of several environments, each with the `agent_ref` of its environment.

    Without weights the environments take turns (round robin) until all rows are read; a limit of a part is for its own
    rows. With weights the turns follow the weights, the mix ends when one environment runs out of rows, and `limit` is
    for all rows together.
    """

    def __init__(
        self,
        parts: list[tuple[str, Rows]],
        read_task: ReadTask,
        weights: Mapping[str, float] | None = None,
        limit: int | None = None,
        fill: Fill | None = None,
    ) -> None:
        super().__init__([], read_task, limit, fill=fill)
        self.name = "mixed"
        self._parts = parts
        self._weights = check_mix(weights, [name for name, _ in parts]) if weights is not None else None

    def _rows(self) -> Iterator[tuple[str, dict[str, Any]]]:
        rows = {name: part._rows() for name, part in self._parts}
        chosen = self._by_weight(rows, self._weights) if self._weights is not None else self._in_turns(rows)
        for name, (where, row) in chosen:
            named = {**row, "agent_ref": {"type": "responses_api_agents", "name": name}}
            yield where, self._filled(where, named)

    def _in_turns(self, rows: dict[str, Iterator[_PlacedRow]]) -> Iterator[tuple[str, _PlacedRow]]:
        while rows:
            for name in list(rows):
                if (row := next(rows[name], None)) is not None:
                    yield name, row
                else:
                    del rows[name]

    def _by_weight(
        self, rows: dict[str, Iterator[_PlacedRow]], weights: dict[str, float]
    ) -> Iterator[tuple[str, _PlacedRow]]:
        for name in itertools.islice(turns(weights), self._limit):
            if (row := next(rows[name], None)) is None:
                return
            yield name, row

    def _lines(self) -> Iterator[tuple[str, bytes]]:
        if self._weights is None or self._limit is None:
            for _, part in self._parts:
                part.check_end()
        return _encoded(self._rows())


def _source(
    rows: str | Path | Iterable[dict[str, Any]] | Generated, limit: int | None
) -> str | Path | list[Any] | Generated:
    """Where the rows are. A text is a dataset on the hub."""
    if isinstance(rows, (str, Path)):
        return str(rows) if is_hub(rows) else resolve(rows)
    if isinstance(rows, (list, Generated)):
        return rows
    if isinstance(rows, dict) or not isinstance(rows, Iterable):
        raise UserError(f"rows must be a file or a list of objects, not {rows!r:.60}", "Example: input=[row]")
    return list(itertools.islice(rows, limit))


def _is_stream(path: Path) -> bool:
    """Whether the file can be read only once: a pipe or a terminal."""
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
            raise UserError(f"{where}: {error}", "Each row must be a JSON object") from error
        yield where, line


class UniqueIds:
    """Makes ids unique: the second `x` becomes `x.2`."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}  # assignments of each duplicated id
        self._hashes: set[int] = set()  # hashes take less memory than texts

    def assign(self, id: str) -> str:
        """The id, with a suffix if it was assigned before."""
        key, counts = hash(id), self._counts
        if key in self._hashes:
            count = counts.get(id, 1) + 1
            while (key := hash(f"{id}.{count}")) in self._hashes:  # a row's own task_id may look like that
                count += 1
            counts[id] = count
            id = f"{id}.{count}"
        self._hashes.add(key)
        return id
