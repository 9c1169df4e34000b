"""The reference's verdict with its known mistakes, for `compat: true`. The README lists them.

The reference reads the first part of the last output item of any type. It takes the first pair of brackets that holds
braces and no other brackets, checks only the last entry of each id, and accepts unknown constraints. A reply that makes
it raise earns 0.
"""

from __future__ import annotations

import json
import re
from typing import Any

from ludus.environments.calendar.rules import overlap
from ludus.response import Response

_PAIR = re.compile(r"\[[^\[\]]*\]")


def passes(state: dict[str, Any], response: Response) -> bool:
    """Whether the reference gives reward 1."""
    text = answer_text(response)
    if not text or "<think>" in text:
        return False
    if not state:
        return True
    try:
        return _keeps(json.loads(first_list(text)), state)
    except Exception:
        return False


def answer_text(response: Response) -> str:
    """The first part of the last item, even if that item is reasoning."""
    content = response.output[-1].get("content") if response.output else None
    if isinstance(content, str):
        return content
    part = content[0] if isinstance(content, list) and content else None
    text = part.get("text") if isinstance(part, dict) else None
    return text if isinstance(text, str) else ""


def first_list(text: str) -> str:
    """The first pair of brackets with braces between them; empty if there is none."""
    pairs = (match[0] for match in _PAIR.finditer(text))
    return next((pair for pair in pairs if -1 < pair.find("{") < pair.rfind("}")), "")


def _keeps(entries: list[dict[str, Any]], state: dict[str, Any]) -> bool:
    by_name = {str(entry["event_id"]): entry for entry in entries}
    distinct = {_frozen(entry): _interval(entry) for entry in entries}
    if not entries or len(by_name) != len(state) or overlap(distinct.values()):
        return False
    return all(_keeps_rule(by_name[name], expected) for name, expected in state.items())


def _keeps_rule(entry: dict[str, Any], expected: dict[str, Any]) -> bool:
    start, end = _interval(entry)
    if entry["duration"] != expected["duration"]:
        return False
    if start < _minutes(expected["min_time"]) or end > _minutes(expected["max_time"]):
        return False
    constraint = expected["constraint"]
    if not constraint:
        return True
    kind, _, rest = constraint.partition(" ")
    match kind:
        case "before":
            return end <= _minutes(rest)
        case "after":
            return start >= _minutes(rest)
        case "between":
            first, last = rest.split(" and ")
            return start >= _minutes(first) and end <= _minutes(last)
        case "at":
            return start == _minutes(rest)
    return True


def _interval(entry: dict[str, Any]) -> tuple[float, float]:
    start = _minutes(entry["start_time"])
    return start, start + entry["duration"]


def _minutes(text: str) -> int:
    """Minutes since midnight. Hours and minutes may be any integers; only lower-case am and pm are known."""
    half = next((half for half in ("am", "pm") if half in text), None)
    if half is None:
        hour, minute = text.split(":")
        return int(hour) * 60 + int(minute)
    hour, _, minute = text.replace(half, "").strip().partition(":")
    past_noon = 720 if half == "pm" else 0
    return past_noon + (0 if int(hour) == 12 else int(hour)) * 60 + int(minute or 0)


def _frozen(value: Any) -> Any:
    """A JSON value as a dictionary key: the reference counts equal entries once."""
    return frozenset((name, _frozen(part)) for name, part in value.items()) if isinstance(value, dict) else value
