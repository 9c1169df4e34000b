"""The work of `ludus data convert`: rows in anybody's layout become tasks, one JSON line each.

The rows are read once, as a stream. The output is a temporary file until it is complete, then it is renamed: a bad last
row leaves no partial dataset behind. Standard output gets tasks at once.
"""

from __future__ import annotations

import contextlib
import itertools
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import orjson
from pydantic import ValidationError

from ludus.data.hub import HubReference, is_hub
from ludus.data.sources import read_lines, resolve
from ludus.errors import UserError
from ludus.record import Row
from ludus.runtime.encoding import json_error
from ludus.runtime.settings import checked, read_yaml
from ludus.runtime.wording import describe_errors
from ludus.store.drafts import check_new, draft
from ludus.store.strict import refuse_losses
from ludus.task import Task, digest
from ludus_data.layouts import Layout, detect_layout, fitting_layout
from ludus_data.mapping import RowMapping

#: How many rows are looked at to tell the layout.
_SAMPLE = 20
_EVERY = 1000
#: The output that is standard output.
STDOUT = "-"
_ELSEWHERE = "Make room or choose another --output"


@dataclass
class Converted:
    """What a conversion did. `layout` is None if the caller chose the mapping; `revision` is the commit on the hub.

    `rows` tasks were written. `repeated` rows held a task that was already written, as exported rollouts of one task
    do. `left_out` counts parts of conversations for which a task has no field, such as `messages[].weight`.
    """

    source: str
    output: str
    rows: int
    layout: str | None
    mapping: RowMapping
    revision: str | None
    left_out: dict[str, int]
    repeated: int = 0

    def as_json(self) -> dict[str, Any]:
        """The conversion, for `--json`."""
        report = {"source": self.source, "revision": self.revision, "output": self.output, "rows": self.rows}
        report["repeated"] = self.repeated
        mapping = self.mapping.model_dump(exclude_defaults=True)
        return {**report, "layout": self.layout, "mapping": mapping, "left_out": self.left_out}


def convert(
    source: str | Path,
    output: str | Path,
    mapping: RowMapping | None = None,
    *,
    layout: Layout | None = None,
    limit: int | None = None,
    overwrite: bool = False,
    say: Callable[[str], None] = lambda _: None,
    tick: Callable[[int], None] = lambda _: None,
) -> Converted:
    """Convert the rows of a source to tasks.

        convert("train.parquet", "tasks.jsonl", RowMapping(map={"question": "prompt"}))

    Without a layout and without a `map`, the layout is detected, and `say` gets a line about it. Other parts of a
    mapping are added to the layout's. The output `-` is standard output. `tick` gets the number of rows, every 1000
    rows.
    """
    mapping = mapping or RowMapping()
    mapping.check()
    if str(output) != STDOUT:
        check_new(Path(output), overwrite=overwrite)
    pinned = resolve(source)
    revision = HubReference.parse(str(pinned)).revision if is_hub(pinned) else None
    tally, count = _Tally(), 0
    with closing(read_lines(pinned)) as opened, _opened(output) as file:
        lines = itertools.islice(opened, limit)
        first = list(itertools.islice(lines, _SAMPLE))
        if not first:
            raise UserError(f"{source} holds no rows", "Name a file that holds some")
        if layout is None and not mapping.map and mapping.task is None:
            layout = _detected([mapping.parsed(_parsed(where, line)) for where, line in first], mapping)
            if layout is not None:
                say(_about(str(source), layout, mapping))
        if layout is not None:
            mapping = _joined(layout.mapping, mapping)
            mapping.check()
        for count, row in enumerate(_tasks(itertools.chain(first, lines), mapping, tally), start=1):
            file.write(orjson.dumps(row) + b"\n")
            if count % _EVERY == 0:
                tick(count)
    name = layout.name if layout is not None else None
    return Converted(str(source), str(output), count, name, mapping, revision, dict(tally.left_out), tally.repeated)


def load_mapping(path: Path) -> RowMapping:
    """A mapping from a YAML file."""
    content = read_yaml(path, "mapping")
    if not isinstance(content, dict):
        raise UserError(f"mapping {path} must hold a mapping", "Example: map: {question: prompt}")
    return checked(RowMapping, content, f"mapping {path}")


@contextlib.contextmanager
def _opened(output: str | Path) -> Iterator[BinaryIO]:
    """The file for the tasks: a draft that is renamed at the end, or standard output."""
    if str(output) != STDOUT:
        with draft(Path(output), _ELSEWHERE) as file:
            yield file
        return
    try:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            raise
        raise UserError(f"cannot write to standard output: {error.strerror}", _ELSEWHERE) from error


def _detected(rows: list[Row], mapping: RowMapping) -> Layout | None:
    """The layout of the rows. With a prompt template, rows without a known layout are fine."""
    return detect_layout(rows) if mapping.prompt is None else fitting_layout(rows)


def _about(source: str, layout: Layout, mapping: RowMapping) -> str:
    prompt = "; the template makes the prompt" if mapping.prompt is not None else ""
    arrows = _joined(layout.mapping, mapping).arrows() if mapping.drop else layout.mapping.arrows()
    return f"{source}: layout {layout.name} ({arrows}{prompt}); choose another with --layout or --map"


def _joined(layout: RowMapping, more: RowMapping) -> RowMapping:
    """The layout's mapping with the user's additions; the user's win."""
    additions = more.model_dump(exclude_defaults=True)
    replaced = {*more.map, *more.drop}
    targets = set(more.map.values())
    known = layout.model_dump()
    known["map"] = {key: to for key, to in layout.map.items() if key not in replaced and to not in targets}
    for key, value in additions.items():
        if isinstance(value, dict) and key != "prompt":
            known[key] = {**known[key], **value}
        else:
            known[key] = [*known[key], *value] if isinstance(value, list) else value
    return RowMapping.model_validate(known)


class _Tally:
    """Counts what the tasks so far left out, and recognises repeated tasks."""

    def __init__(self) -> None:
        self.left_out = Counter[str]()
        self.repeated = 0
        self._digests: set[str] = set()

    def is_new(self, task: Row) -> bool:
        """Whether a task was not written before. Counts repeated ones."""
        before = len(self._digests)
        self._digests.add(digest(task))
        self.repeated += len(self._digests) == before
        return len(self._digests) > before


def _tasks(lines: Iterator[tuple[str, bytes]], mapping: RowMapping, tally: _Tally) -> Iterator[Row]:
    kinds = _Kinds(mapping)
    for where, line in lines:
        row = _parsed(where, line)
        refuse_losses(where, line.strip(), row)
        try:
            lost: list[str] = []
            task = mapping.task_row(row, lost)
            tally.left_out.update({re.sub(r"\[\d+\]", "[]", loss.partition(": ")[0]) for loss in lost})
            Task.model_validate(task)
        except UserError as error:
            raise UserError(f"{where}: {error}") from error
        except ValidationError as error:
            field = ".".join(str(step) for step in error.errors()[0]["loc"]) or "row"
            raise UserError(f"{where}: {describe_errors(field, error.errors()[:1])}") from error
        if mapping.task is not None and not tally.is_new(task):
            continue
        kinds.look(where, task)
        yield task


def _parsed(where: str, line: bytes) -> Row:
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise UserError(f"{where}: {json_error(error)}", "Fix the row or leave it out") from error
    if not isinstance(row, dict):
        raise UserError(f"{where}: not a JSON object", "Fix the row or leave it out")
    return row


class _Kinds:
    """The type of each field's first value. A later row with another type is refused."""

    def __init__(self, mapping: RowMapping) -> None:
        self._sources = {target: source for source, target in mapping.map.items()}
        self._first: dict[str, tuple[str, str]] = {}

    def look(self, where: str, row: Row) -> None:
        """Compare the fields of a row with those of the rows before."""
        for field, value in row.items():
            kind = _kind(value)
            if kind is None:
                continue
            before, place = self._first.setdefault(field, (kind, where))
            if before != kind:
                both = {before, kind} <= {"text", "a number"}
                name = self._sources.get(field, field)  # as the user knows it
                remedy = f"Make it text everywhere: --text {name}" if both else f"Fix the row, or use --drop {name}"
                raise UserError(f"{where}: {field:.60} is {kind}, and was {before} in {place}", remedy)


def _kind(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return "true or false"
    return {str: "text", int: "a number", float: "a number", list: "a list"}.get(type(value), "an object")
