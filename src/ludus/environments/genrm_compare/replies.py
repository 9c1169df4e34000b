"""Read a reward model's reply: two scores and a ranking, in a JSON object somewhere in its text.

The first object in a block marked as JSON counts, or else the last object of the text. If the object has a part called
`overall`, that part counts. A reply may quote a hostile answer: an object without scores is not a verdict, and only a
limited number of braces is tried, so that reading takes linear time.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

KEYS = ("score_1", "score_2", "ranking")
_FENCE, _FENCE_END = "```json", "```"
_DECODER = json.JSONDecoder()

#: How many braces are tried as the beginning of an object.
_TRIES = 64


class Scores(NamedTuple):
    """Two scores from 1 to 5, and a ranking from 1 (the first is much better) to 6 (the second is much better)."""

    first: float
    second: float
    ranking: float


def read_scores(text: str, default: Scores, *, compat: bool = False) -> Scores | None:
    """The scores in a text, with defaults for missing ones; None if all are missing or one is not a finite number.
    With `compat`, an object without scores hides another that has them."""
    blocks = (_first_object(block, any_object=compat) for block in _blocks(text))
    value = next((block for block in blocks if block is not None), None)
    if value is None:
        value = _last_object(text, any_object=compat)
    if value is None or not _has_scores(value):
        return None
    values = _overall(value)
    try:
        scores = Scores(*(float(values.get(key, usual)) for key, usual in zip(KEYS, default, strict=True)))
    except (TypeError, ValueError, OverflowError):
        return None
    return scores if all(map(math.isfinite, scores)) else None


def _overall(reply: dict[str, Any]) -> dict[str, Any]:
    overall = reply.get("overall")
    return overall if isinstance(overall, dict) else reply


def _has_scores(reply: dict[str, Any]) -> bool:
    return any(key in _overall(reply) for key in KEYS)


def _blocks(text: str) -> Iterator[str]:
    """The content of every closed code block marked as JSON."""
    start = text.find(_FENCE)
    while start >= 0:
        end = text.find(_FENCE_END, start + len(_FENCE))
        if end < 0:
            return
        yield text[start + len(_FENCE) : end]
        start = text.find(_FENCE, end + len(_FENCE_END))


def _first_object(text: str, *, any_object: bool) -> dict[str, Any] | None:
    start = text.find("{")
    for _ in range(_TRIES):
        if start < 0:
            return None
        value, end = _object_at(text, start)
        if value is not None and (any_object or _has_scores(value)):
            return value
        start = text.find("{", max(end, start + 1))
    return None


def _last_object(text: str, *, any_object: bool) -> dict[str, Any] | None:
    """The last object that is not nested: search backwards, then prefer an object that encloses the found one."""
    last, last_end = None, -1
    start = len(text)
    for _ in range(_TRIES):
        start = text.rfind("{", 0, start)
        if start < 0:
            break
        value, end = _object_at(text, start)
        if value is not None and (last is None or end >= last_end) and (any_object or _has_scores(value)):
            last, last_end = value, end
    return last


def _object_at(text: str, start: int) -> tuple[dict[str, Any] | None, int]:
    """The object that begins at a brace, and where it ends; None if there is no valid object."""
    try:
        value, end = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        return None, start
    return value, end
