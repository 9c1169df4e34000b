"""Tool calls as a person types them, in `ludus chat` and on the page Play of `ludus view`."""

from __future__ import annotations

import difflib
import json
import re
import shlex
from dataclasses import dataclass
from typing import Any

_PAIR = re.compile(r"([A-Za-z_][\w.-]*)=(.*)", re.DOTALL)


@dataclass
class Call:
    """A tool's name and its arguments as JSON text, as a model would send them."""

    name: str
    arguments: str


@dataclass
class Mistyped:
    """A line that would be a call if its first word were the name of a tool: `meant` is the most similar one."""

    name: str
    meant: str


def read_turn(line: str, tools: list[dict[str, Any]]) -> Call | Mistyped | str | None:
    """Parse a typed line into a call or the text of an answer; None for a `/call` without a name.

    `NAME key=value ...` is a call if NAME is a tool and the rest parses as pairs or JSON; `/call NAME ...` always is.
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
        close = difflib.get_close_matches(command[:80], known, n=1, cutoff=0.75)
        has_arguments = rest.strip().startswith("{") or _pairs(rest, {}) is not None
        return Mistyped(command, close[0]) if close and has_arguments else line
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
    """Parse `key=value ...` into JSON; None if the text has another form. Quotes allow spaces in a value."""
    try:
        words = shlex.split(rest)
    except ValueError:
        return None
    pairs = [_PAIR.fullmatch(word) for word in words]
    properties = _object(_object(entry.get("parameters")).get("properties"))
    arguments = {}
    for pair in pairs:
        if pair is None:
            return None
        arguments[pair[1]] = _value(pair[2], _object(properties.get(pair[1])).get("type"))
    return json.dumps(arguments, ensure_ascii=False)


def _value(typed: str, schema_type: Any) -> Any:
    """Parse a value as JSON; keep it as text if the tool wants a string or the JSON is invalid."""
    if schema_type == "string":
        return typed
    try:
        return json.loads(typed)
    except (ValueError, RecursionError):
        return typed


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
