"""Why a row is bad: the one place that decides, for collections and for `ludus data validate`.

A row is bad if its line is no JSON object, if it is nested too deep to be written again, or if the `Task` of its
environment refuses it. A collection stops at the first bad row; `validate` reports them all.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from ludus.errors import UserError, place_of_error
from ludus.runtime.boundary import is_interrupt
from ludus.runtime.encoding import json_error
from ludus.runtime.imports import describe
from ludus.runtime.wording import describe_errors
from ludus.store.strict import DuplicateKey, LongInteger, refuse_duplicate_keys, refuse_long_integers
from ludus.task import Task, digest

#: A line with at most this many opening brackets cannot be nested too deep, so its depth is not checked.
_SAFE_BRACKETS = 200

#: Where rows of other tools keep the prompt.
_PROMPTS = ("messages", "prompt", "input", "question", "problem", "conversations")

_FIX = "Fix the row or leave it out"
_ONE_OBJECT = "Each line must hold one JSON object"

ReadTask = Callable[[dict[str, Any]], Task]


@dataclass(frozen=True)
class Problem:
    """One reason why a row is bad. `where` is its file and line; `field` is `row` if no field is to blame."""

    where: str
    field: str
    reason: str
    hint: str


class BadRow(UserError):
    """A row that no collection can play. Its message is about the first of its problems."""

    def __init__(self, problems: list[Problem]) -> None:
        first = problems[0]
        super().__init__(f"{first.where}: {first.reason}", first.hint)
        self.problems = problems


class BadField(UserError):
    """Raised by a `ReadTask` that knows which field of the row is to blame."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(message)
        self.field = field


def parse_row(where: str, line: bytes) -> dict[str, Any]:
    """The JSON object of a line, or a `BadRow` that names the line."""
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise _bad(where, "row", json_error(error), _ONE_OBJECT) from error
    if not isinstance(row, dict):
        raise _bad(where, "row", "not a JSON object", _ONE_OBJECT)
    return row


def unambiguous_row(where: str, line: bytes) -> dict[str, Any]:
    """The JSON object of a line without duplicate keys, or a `BadRow`: JSON parsers differ in which value they take."""
    row = parse_row(where, line)
    if line.count(b"[") + line.count(b"{") > _SAFE_BRACKETS:
        row_digest(where, row)
    try:
        refuse_duplicate_keys(where, line.strip(), row)
    except DuplicateKey as error:
        raise _bad(where, error.key, error.reason, error.hint) from error
    return row


def writable_row(where: str, line: bytes) -> dict[str, Any]:
    """The JSON object of a line that survives a rewrite unchanged, or a `BadRow`."""
    row = unambiguous_row(where, line)
    try:
        refuse_long_integers(where, line)
    except LongInteger as error:
        raise _bad(where, "row", error.reason, error.hint) from error
    return row


def checked_task(where: str, row: dict[str, Any], read_task: ReadTask) -> Task:
    """The task of a row, or a `BadRow` with every field that the environment refuses."""
    try:
        return read_task(row)
    except ValidationError as error:
        raise BadRow([_refused(where, details, row) for details in error.errors()]) from error
    except UserError as error:
        raise _bad(where, error.field if isinstance(error, BadField) else "row", str(error), "") from error
    except BaseException as error:  # raised by an author's own validator
        if is_interrupt(error):
            raise
        raise _bad(where, "row", describe(error), f"Correct {place_of_error(error)}") from error


def row_digest(where: str, row: dict[str, Any]) -> str:
    """The digest of a row, or a `BadRow` if it is nested too deep: orjson reads deeper nesting than it writes."""
    try:
        return digest(row)
    except TypeError as error:
        raise _bad(where, "row", f"nested too deep: {error}", _FIX) from error


def _bad(where: str, field: str, reason: str, hint: str) -> BadRow:
    return BadRow([Problem(where, field, reason, hint)])


def _refused(where: str, error: ErrorDetails, row: dict[str, Any]) -> Problem:
    field = ".".join(str(step) for step in error["loc"]) or "row"
    value = {} if error["type"] == "missing" or isinstance(error["input"], dict) else {"value": error["input"]}
    return Problem(where, field, describe_errors(field, [error], **value), _hint(error, row))


def _hint(error: ErrorDetails, row: dict[str, Any]) -> str:
    """How to fix a row that a `Task` refused."""
    field = str(error["loc"][-1]) if error["loc"] else ""
    params = row.get("responses_create_params")
    if field == "responses_create_params":
        asked = row if error["type"] == "missing" else params if isinstance(params, dict) else {}
        for name in _PROMPTS if "input" not in asked else ():
            if name in asked:
                if asked is row:
                    template = f"ludus collect --prompt '{{{name}}}', or " if isinstance(row[name], str) else ""
                    return f"The prompt is in {name}: use {template}ludus data convert FILE --output NEW"
                path = f"responses_create_params.{name}"
                command = f"jq -c '.responses_create_params.input = .{path}' FILE"
                return f"The prompt is in {path}: write it as responses_create_params.input, with {command}"
    if error["type"] == "string_type" and type(error["input"]) in (int, float):
        path = ".".join(str(step) for step in error["loc"])
        return f"Write it as text: ludus data convert FILE --text {path} --output NEW"
    similar = difflib.get_close_matches(field, row, n=1, cutoff=0.8) if error["type"] == "missing" else []
    return f"The row has {similar[0]}: did you mean {field}?" if similar else _FIX
