"""The JSON object of a line. Every error is a `Failure` of kind `bad_row`, because users can edit a file."""

from __future__ import annotations

import json
from typing import Any

import orjson

from ludus.errors import Failure, Stage, UserError
from ludus.record import Row
from ludus.runtime.encoding import json_error

#: How the cause of a line begins that is no JSON at all.
NOT_JSON = "not JSON:"


def parse(line: bytes) -> Row:
    """The JSON object of a line."""
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        row = parse_lenient(line)
        if row is None:
            raise bad_row(json_error(error)) from None
    if not isinstance(row, dict):
        raise bad_row("not a JSON object")
    return row


def parse_at(where: str, line: bytes, hint: str) -> Row:
    """The JSON object of a line. Raises a UserError that says where the line is."""
    try:
        return parse(line)
    except Failure as failure:
        raise UserError(f"{where}: {failure.cause}", hint) from failure


def parse_lenient(line: bytes) -> Any:
    """Parse with Python's json, which accepts what orjson refuses: NaN, lone surrogates, a byte order mark."""
    try:
        return json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        return None


def bad_row(cause: str, stage: Stage = "open") -> Failure:
    """The failure of a row that cannot be scored."""
    return Failure("bad_row", cause, stage=stage)


def is_whole(line: bytes) -> bool:
    """Whether a line is a JSON object."""
    try:
        parse(line)
    except Failure:
        return False
    return True


def is_torn(line: bytes) -> bool:
    """Whether a last line ends in the middle, as a kill leaves it: it has no newline and is no JSON."""
    if line.endswith(b"\n"):
        return False
    try:
        parse(line)
    except Failure as failure:
        return failure.cause.startswith(NOT_JSON)
    return False
