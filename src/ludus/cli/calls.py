"""Tool calls as a person types them."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from typing import Any

_PAIR = re.compile(r"([A-Za-z_][\w.-]*)=(.*)", re.DOTALL)


@dataclass
class Call:
    """A tool's name, and the text of its arguments as a model would write it."""

    name: str
    arguments: str


def read_turn(line: str, tools: list[dict[str, Any]]) -> Call | str | None:
    """A typed line as a call, or as the text of an answer; None for a `/call` that names nothing.

    `NAME key=value ...` is a call if NAME is a tool and the rest reads as pairs or as JSON; `/call NAME ...` always is.
    """
    command, _, rest = line.partition(" ")
    if command == "/say":
        return rest
    known = {str(entry.get("name")): entry for entry in tools}
    if command == "/call":
        name, _, rest = rest.strip().partition(" ")
        if not name:
            return None
        pairs = _pairs(rest, known.get(name, {}))
        return Call(name, rest.strip() if pairs is None else pairs)
    if command not in known:
        return line
    if rest.strip().startswith("{"):
        return Call(command, rest.strip())
    pairs = _pairs(rest, known[command])
    return line if pairs is None else Call(command, pairs)


def signature(entry: dict[str, Any]) -> str:
    """A tool as `name(required, optional?)`."""
    parameters = _object(entry.get("parameters"))
    required = parameters.get("required") or ()
    names = (name if name in required else f"{name}?" for name in _object(parameters.get("properties")))
    return f"{entry.get('name')}({', '.join(names)})"


def _pairs(rest: str, entry: dict[str, Any]) -> str | None:
    """`key=value ...` as JSON; None where the text is anything else. Quotes hold a value with spaces together."""
    try:
        words = shlex.split(rest)
    except ValueError:
        return None
    found = [_PAIR.fullmatch(word) for word in words]
    types = _object(_object(entry.get("parameters")).get("properties"))
    arguments = {}
    for pair in found:
        if pair is None:
            return None
        arguments[pair[1]] = _value(pair[2], _object(types.get(pair[1])).get("type"))
    return json.dumps(arguments, ensure_ascii=False)


def _value(written: str, wanted: Any) -> Any:
    """A value as JSON reads it, or as plain text where the tool wants text or JSON cannot read it."""
    if wanted == "string":
        return written
    try:
        return json.loads(written)
    except (ValueError, RecursionError):
        return written


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
