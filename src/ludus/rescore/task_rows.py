"""Joining rollouts to the rows of their dataset by the prompt, for rollouts that were recorded without them.

NeMo Gym's rollouts hold the prompt, the response and the reward, but few of the task's fields, so a verifier cannot
judge them. `TaskRows` finds the dataset's row with the same prompt and adds the fields that the rollout lacks. It never
guesses: a prompt that no row has, that two different rows have, or whose row contradicts the rollout is a failure.

An index by the prompt's digest is held in memory, about 300 bytes a row; the rows stay in their file.
"""

from __future__ import annotations

import os
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from ludus.data.row_checks import parse_row
from ludus.errors import Failure, UserError
from ludus.outcome import NAMES
from ludus.record import Row, task_row
from ludus.runtime.encoding import encode
from ludus.runtime.regular_files import open_regular
from ludus.store.lines import Source
from ludus.store.parsing import bad_row
from ludus.store.stored import StoredRow
from ludus.task import digest

#: Fields of an item that say nothing about the prompt: other tools add or drop them.
_NOT_THE_PROMPTS = frozenset({"id", "status", "annotations", "logprobs"})
_TEXT_PARTS = frozenset({"input_text", "output_text", "text"})


class _IndexedRow(NamedTuple):
    """A row of the dataset: where it is, a digest of its content, and the line of another row with the same prompt."""

    offset: int
    length: int
    number: int
    content: str
    other: int = 0


class TaskRows:
    """The rows of one dataset, found by their prompts.

    rows = TaskRows(Path("example.jsonl"))
    task = rows.join(task)      # raises `Failure` unless exactly one row has the task's prompt
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._rows: dict[bytes, _IndexedRow] = {}
        self._last: tuple[int, Row] = (-1, {})
        with Source(path) as source:
            for number, line in source.lines:
                self._add(number, source.offset, line)
        if not self._rows:
            raise UserError(f"{path} holds no rows", "Name the rows of the run with --rows FILE")
        self._file = open_regular(path, buffering=0)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def join(self, task: Row) -> Row:
        """The task with the fields that it lacks. A field that is null counts as lacking."""
        prompt = _prompt(task)
        if prompt is None:
            raise bad_row("responses_create_params.input: the row has no prompt to find its task by")
        indexed = self._rows.get(prompt)
        if indexed is None:
            raise Failure("no_match", f"no row of {self.path} has its prompt", stage="open")
        if indexed.other:
            cause = f"lines {indexed.number} and {indexed.other} of {self.path} have its prompt, and they differ"
            raise Failure("ambiguous_match", cause, stage="open")
        row = self._read(indexed)
        own = {key: value for key, value in task.items() if value is not None}
        for key, value in row.items():
            if key in own and key != "responses_create_params" and key not in NAMES and own[key] != value:
                cause = f"its {key} differs from line {indexed.number} of {self.path}, which has its prompt"
                raise Failure("no_match", cause, stage="open")
        missing = {key: value for key, value in row.items() if key not in own}
        return {**task, **missing} if missing else task

    def _add(self, number: int, offset: int, line: bytes) -> None:
        where = f"{self.path}:{number}"
        row = task_row(parse_row(where, line))
        prompt = _prompt(row)
        if prompt is None:
            raise UserError(f"{where}: responses_create_params.input is missing", "Fix the row or leave it out")
        try:
            content = digest(row)
        except TypeError as error:
            raise UserError(f"{where}: nested too deep: {error}", "Fix the row or leave it out") from error
        indexed = self._rows.get(prompt)
        if indexed is None:
            self._rows[prompt] = _IndexedRow(offset, len(line), number, content)
        elif indexed.content != content and not indexed.other:
            self._rows[prompt] = indexed._replace(other=number)

    def _read(self, indexed: _IndexedRow) -> Row:
        """The fields of a task. The last row is cached, because the repeats of a task follow each other."""
        last = self._last
        if last[0] != indexed.offset:
            number = indexed.number
            line = os.pread(self._file.fileno(), indexed.length, indexed.offset)  # groups are read in a thread
            row = StoredRow(parse_row(f"{self.path}:{number}", line), number).with_exact_integers(line)
            self._last = last = indexed.offset, row.task
        return last[1]


def _prompt(task: Row) -> bytes | None:
    """The digest of a task's prompt: its input and instructions, however they are written; None without an input."""
    params = task.get("responses_create_params")
    prompt = params.get("input") if isinstance(params, dict) else None
    if not isinstance(params, dict) or not isinstance(prompt, (str, list)):
        return None
    items = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
    try:
        content = encode([params.get("instructions"), [_plain(item) for item in items]])
    except RecursionError:
        return None
    return blake2b(content, digest_size=16).digest()


def _plain(item: Any) -> Any:
    """An item without what the same prompt may have or lack, in the order of its keys."""
    if not isinstance(item, dict):
        return item
    fields = {key: item[key] for key in sorted(item) if item[key] is not None and key not in _NOT_THE_PROMPTS}
    if fields.get("type") == "message":
        del fields["type"]
    content = fields.get("content")
    if isinstance(content, list):
        parts = [_plain_part(part) for part in content]
        fields["content"] = parts[0] if len(parts) == 1 and isinstance(parts[0], str) else parts
    return fields


def _plain_part(part: Any) -> Any:
    """A part of a message's content: the text of a part that is no more than a text."""
    if not isinstance(part, dict):
        return part
    fields = {key: part[key] for key in sorted(part) if part[key] is not None and key not in _NOT_THE_PROMPTS}
    is_text = fields.keys() == {"type", "text"} and fields["type"] in _TEXT_PARTS
    return fields["text"] if is_text and isinstance(fields["text"], str) else fields
