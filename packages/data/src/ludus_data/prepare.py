"""`ludus data prepare`: collate the datasets of several environments into one file for each split.

All rows are read twice: first to check and count them, then to write them. Nothing is written while a row is bad. Rows
of train are weighted, repeated and shuffled; rows of the other splits keep their order. The files appear when all of
them are complete.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO

import orjson

from ludus.data.mixing import check_mix
from ludus.data.row_checks import BadRow, Problem, ReadTask, checked_task, parse_row, writable_row
from ludus.errors import UserError
from ludus.record import Row
from ludus.store.drafts import check_new, draft, write_whole
from ludus.store.run import indented_json
from ludus_data.conflicts import TRAIN, Conflict, Conflicts
from ludus_data.field_stats import RowFields
from ludus_data.inputs import Inputs, Tick, ends_with_newline
from ludus_data.mixing import mixed_counts
from ludus_data.shuffle import shuffled

MANIFEST = "manifest.json"
_PROBLEMS_SHOWN = 5
_ELSEWHERE = "Choose another --output"


@dataclass
class SplitSource:
    """A file of rows of one environment, for one split. `read_task` checks a row, and `look` sees each good row.

    `copy` is a file for the prepared rows of this source alone.
    """

    environment: str
    split: str
    path: Path
    read_task: ReadTask
    repeats: int = 1
    licence: str = "unknown"
    look: Callable[[Row], None] = lambda _: None
    copy: Path | None = None
    rows: int = 0
    used: int = 0
    sha256: str = ""

    def as_json(self) -> dict[str, Any]:
        """The source as the manifest lists it."""
        names = ("environment", "split", "licence", "rows", "repeats", "used", "sha256")
        return {"file": str(self.path), **{name: getattr(self, name) for name in names}}


@dataclass
class PreparedFile:
    """A file that was written."""

    split: str
    path: Path
    rows: int = 0
    bytes: int = 0
    sha256: str = ""

    def as_json(self) -> dict[str, Any]:
        """The file as the manifest lists it."""
        sizes = {"rows": self.rows, "bytes": self.bytes, "sha256": self.sha256}
        return {"split": self.split, "file": self.path.name, **sizes}


@dataclass
class Preparation:
    """The sources of a preparation, checked: `Preparation.check(sources)`, then `write(folder)`."""

    sources: list[SplitSource]
    inputs: Inputs
    conflicts: list[Conflict] = field(default_factory=list)
    statistics: dict[str, dict[str, Any]] = field(default_factory=dict)
    files: list[PreparedFile] = field(default_factory=list)

    @classmethod
    def check(cls, sources: Sequence[SplitSource], tick: Tick = lambda _: None) -> Preparation:
        """Check and count every row. The error lists the first bad rows."""
        ordered = sorted(sources, key=lambda source: source.split != TRAIN)
        inputs = Inputs([source.path for source in ordered], tick, passes=2)
        preparation, conflicts, bad = cls(list(sources), inputs), Conflicts(), _BadRows()
        fields: dict[tuple[str, str], RowFields] = {}
        for source in ordered:
            described = fields.setdefault((source.split, source.environment), RowFields())
            content = sha256()
            for where, line in inputs.lines(source.path):
                content.update(ends_with_newline(line))
                source.rows += 1
                try:
                    row = writable_row(where, line)
                    checked_task(where, row, source.read_task)
                except BadRow as error:
                    bad.add(error)
                    continue
                described.add(row)
                conflicts.look(where, source.split, row)
                source.look(row)
            source.sha256 = content.hexdigest()
        bad.refuse()
        for (split, environment), described in fields.items():
            preparation.statistics.setdefault(split, {})[environment] = described.as_json()
        preparation.conflicts = conflicts.all(fields)
        return preparation

    def write(self, output: Path, *, mix: Mapping[str, float] | None = None, seed: int | None = 0) -> None:
        """Write `SPLIT.jsonl` for each split. Without a seed the rows of train keep their order."""
        wanted = self._wanted(mix)
        with ExitStack() as stack:
            for split in dict.fromkeys(source.split for source in self.sources):
                file = PreparedFile(split, output / f"{split}.jsonl")
                target, content = stack.enter_context(draft(file.path, _ELSEWHERE)), sha256()
                lines = self._lines(split, wanted, random.Random(f"{seed}"), stack)
                if split == TRAIN and seed is not None:
                    lines = shuffled(lines, seed)
                for line in lines:
                    target.write(line)
                    content.update(line)
                    file.rows += 1
                    file.bytes += len(line)
                file.sha256 = content.hexdigest()
                self.files.append(file)

    def manifest(self) -> dict[str, Any]:
        """The files, their sources, conflicts and statistics, for people and programs."""
        return {
            "files": [file.as_json() for file in self.files],
            "sources": [source.as_json() for source in self.sources],
            "conflicts": [conflict.as_json() for conflict in self.conflicts],
            "statistics": self.statistics,
        }

    def _wanted(self, mix: Mapping[str, float] | None) -> dict[str, int] | None:
        """How many rows of train each environment gives; None if it gives all."""
        if mix is None:
            return None
        available = self._available()
        return mixed_counts(check_mix(mix, available), available)

    def _lines(
        self, split: str, wanted: dict[str, int] | None, draw: random.Random, stack: ExitStack
    ) -> Iterator[bytes]:
        choices: dict[str, _Choice] = {}
        for source in self.sources:
            if source.split != split:
                continue
            name, choice = source.environment, None
            if wanted is not None and split == TRAIN:
                choice = choices.setdefault(name, _Choice(self._available()[name], wanted[name], draw))
            copy = stack.enter_context(draft(source.copy, _ELSEWHERE)) if source.copy is not None else None
            yield from self._of_source(source, choice, copy)

    def _of_source(self, source: SplitSource, choice: _Choice | None, copy: BinaryIO | None) -> Iterator[bytes]:
        for where, line in self.inputs.lines(source.path):
            stamped = with_agent(where, line, source.environment)
            for _ in range(source.repeats):
                if choice is None or choice.takes():
                    source.used += 1
                    if copy is not None:
                        copy.write(stamped)
                    yield stamped

    def _available(self) -> dict[str, int]:
        """How many rows of train each environment has, repeats included."""
        counts: dict[str, int] = {}
        for source in self.sources:
            if source.split == TRAIN:
                counts[source.environment] = counts.get(source.environment, 0) + source.rows * source.repeats
        return counts


def prepare(
    sources: Sequence[SplitSource],
    output: str | Path,
    *,
    mix: Mapping[str, float] | None = None,
    seed: int | None = 0,
    overwrite: bool = False,
    tick: Tick = lambda _: None,
) -> dict[str, Any]:
    """Collate the sources into the folder `output`. Returns the manifest, which is written there too.

    `mix` are the weights of the environments in train.
    """
    folder = Path(output)
    manifest = folder / MANIFEST
    for name in (MANIFEST, *(f"{source.split}.jsonl" for source in sources)):
        check_new(folder / name, overwrite=overwrite)
    if mix is not None:
        check_mix(mix, dict.fromkeys(source.environment for source in sources if source.split == TRAIN))
    prepared = Preparation.check(sources, tick)
    prepared.write(folder, mix=mix, seed=seed)
    content = {"seed": seed, "mix": dict(mix) if mix is not None else None, **prepared.manifest()}
    write_whole(manifest, indented_json(content) + b"\n")
    return content


class _Choice:
    """Chooses `wanted` of `total` rows while they are read, each with the same probability."""

    def __init__(self, total: int, wanted: int, draw: random.Random) -> None:
        self._left, self._wanted, self._draw = total, wanted, draw

    def takes(self) -> bool:
        """Whether the next row is chosen."""
        taken = self._draw.random() * self._left < self._wanted
        self._left -= 1
        self._wanted -= taken
        return taken


class _BadRows:
    """The first problems of all sources, and how many there are."""

    def __init__(self) -> None:
        self._problems: list[Problem] = []
        self._count = 0

    def add(self, bad: BadRow) -> None:
        self._count += len(bad.problems)
        self._problems += bad.problems[: _PROBLEMS_SHOWN - len(self._problems)]

    def refuse(self) -> None:
        if self._count:
            shown = "; ".join(f"{problem.where}: {problem.reason}" for problem in self._problems)
            more = f"; and {self._count - len(self._problems):,} more" if self._count > len(self._problems) else ""
            raise UserError(f"{shown}{more}", "Fix the rows or leave them out")


def with_agent(where: str, line: bytes, environment: str) -> bytes:
    """The line of a row with its `agent_ref`. All other bytes stay, also numbers beyond 64 bits."""
    row, reference = parse_row(where, line), {"type": "responses_api_agents", "name": environment}
    if row.get("agent_ref") == reference:
        return ends_with_newline(line)
    if "agent_ref" in row or not row:
        whole = {**json.loads(line), "agent_ref": reference}
        return json.dumps(whole, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
    return line.rstrip()[:-1] + b',"agent_ref":' + orjson.dumps(reference) + b"}\n"
