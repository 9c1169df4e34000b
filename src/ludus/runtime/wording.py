"""Errors of pydantic in plain words: `max_steps must be a whole number, not 'x'`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from pydantic_core import ErrorDetails

_KINDS = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "string": "text",
    "list": "a list",
    "dict": "an object with keys",
    "model": "an object with keys",
    "url": "a URL",
    "none": "null",
}
_LIMITS = {
    "greater_than": ("gt", "greater than"),
    "greater_than_equal": ("ge", "at least"),
    "less_than": ("lt", "less than"),
    "less_than_equal": ("le", "at most"),
}
_NOTHING = object()


def describe_errors(name: str, errors: Iterable[ErrorDetails], value: Any = _NOTHING) -> str:
    """One sentence about the errors of one field. `value` is the bad value, if it may be shown.

    The message of an author's own validator stays as it is.
    """
    problems = list(errors)
    if problems[0]["type"] == "missing":
        return f"{name} is missing"
    shown = "" if value is _NOTHING else f", not {value!r:.80}"
    wanted = list(dict.fromkeys(kind for error in problems if (kind := _wanted(error)) is not None))
    if wanted:
        return f"{name} must be {_either(wanted)}{shown}"
    text = re.sub(r"^(Value|Assertion) error, ", "", problems[0]["msg"])
    return f"{name}: {text}"


def _either(wanted: list[str]) -> str:
    """The allowed kinds of value in one phrase: `'a', 'b' or 'c'`."""
    choices = [part for kind in wanted for part in (re.split(", | or ", kind) if kind.startswith("'") else [kind])]
    return " or ".join(part for part in (", ".join(choices[:-1]), choices[-1]) if part)


def _wanted(error: ErrorDetails) -> str | None:
    """What a value must be; None if the error is about something else."""
    kind, context = error["type"], error.get("ctx") or {}
    if kind in _LIMITS:
        key, words = _LIMITS[kind]
        return f"{words} {context[key]}"
    if kind in ("literal_error", "enum"):
        return str(context["expected"])
    if kind == "int_from_float":
        return _KINDS["int"]
    base = re.fullmatch(r"(\w+?)_(type|parsing|required|attributes_type|parsing_size)", kind)
    if base is not None and base[1] in _KINDS:
        return _KINDS[base[1]]
    match = re.fullmatch(r"Input should be (.+)", error["msg"])
    return match[1] if match is not None else None
