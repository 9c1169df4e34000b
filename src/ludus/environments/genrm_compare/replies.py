"""What a reward model said: two scores and a ranking, somewhere in its text as a JSON object.

The first object in a block marked as JSON counts, or else the last object of the text. Where it has a part called
`overall`, that part is meant. A reply may quote what a hostile model wrote: an object that says nothing of scores is no
verdict, and only so many braces are looked at, so that reading is linear in the text.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

KEYS = ("score_1", "score_2", "ranking")
_FENCE, _FENCE_END = "```json", "```"
_DECODER = json.JSONDecoder()

#: How many braces may be tried for the beginning of an object.
_TRIES = 64


class Scores(NamedTuple):
    """How good two answers are, from 1 to 5, and which is better: from 1, much the first, to 6, much the second."""

    first: float
    second: float
    ranking: float


def read_scores(text: str, default: Scores, *, compat: bool = False) -> Scores | None:
    """The scores that a text holds, with defaults for what it leaves out; None where it says none of them, or says
    something that is no number. With `compat` an object without scores hides one that has them."""
    blocks = (_first_object(block, any_object=compat) for block in _blocks(text))
    found = next((block for block in blocks if block is not None), None)
    if found is None:
        found = _last_object(text, any_object=compat)
    if found is None or not _has_scores(found):
        return None
    said = _meant(found)
    try:
        scores = Scores(*(float(said.get(key, usual)) for key, usual in zip(KEYS, default, strict=True)))
    except (TypeError, ValueError, OverflowError):
        return None
    return scores if all(map(math.isfinite, scores)) else None


def _meant(found: dict[str, Any]) -> dict[str, Any]:
    overall = found.get("overall")
    return overall if isinstance(overall, dict) else found


def _has_scores(found: dict[str, Any]) -> bool:
    return any(key in _meant(found) for key in KEYS)


def _blocks(text: str) -> Iterator[str]:
    """The content of every closed block that is marked as JSON."""
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
        found, end = _object_at(text, start)
        if found is not None and (any_object or _has_scores(found)):
            return found
        start = text.find("{", max(end, start + 1))
    return None


def _last_object(text: str, *, any_object: bool) -> dict[str, Any] | None:
    """The last object that lies in no other: the first one from behind, then whatever encloses it."""
    last, last_end = None, -1
    start = len(text)
    for _ in range(_TRIES):
        start = text.rfind("{", 0, start)
        if start < 0:
            break
        found, end = _object_at(text, start)
        if found is not None and (last is None or end >= last_end) and (any_object or _has_scores(found)):
            last, last_end = found, end
    return last


def _object_at(text: str, start: int) -> tuple[dict[str, Any] | None, int]:
    """The object that begins at a brace, and where it ends; None where none does."""
    try:
        found, end = _DECODER.raw_decode(text, start)
    except (ValueError, RecursionError):
        return None, start
    return found, end
