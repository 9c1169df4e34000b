"""Where the model calls of a record lie in its trajectory.

`model_calls` is the record's field of that name: one entry for each model call. `items` is how many items the call
wrote. `at` is the index of the first one; a record without it has the items of the calls in order, with what the model
was shown between them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ludus.response import Item, is_reply


def sizes_of(model_calls: Any) -> list[int] | None:
    """How many items each model call wrote, or None if that is unknown for any of them."""
    calls = model_calls if isinstance(model_calls, list) else []
    sizes = [call["items"] for call in calls if isinstance(call, dict) and isinstance(call.get("items"), int)]
    return sizes if sizes and len(sizes) == len(calls) else None


def without_tokens(call: dict[str, Any]) -> dict[str, Any]:
    """An entry of `model_calls` with the fields that place it in a trajectory, and not its tokens."""
    return {key: call[key] for key in ("items", "at", "parallel") if key in call}


def call_starts(output: list[Item], model_calls: list[dict[str, Any]]) -> Iterator[int]:
    """The index in a trajectory of the first item of each model call."""
    at = 0
    for call in model_calls:
        at = _after_replies(output, at, call)
        yield at
        at += call["items"]


def _after_replies(output: list[Item], at: int, call: dict[str, Any]) -> int:
    """The index of the first item of the next model call at or after `at`, past the items that the model was shown.

    An empty answer has no items: it is assumed to come after the outputs of tools and one message.
    """
    if isinstance(call.get("at"), int):
        return int(call["at"])
    messages = 0
    while 0 <= at < len(output) and is_reply(output[at]) and (call["items"] or not messages):
        messages += output[at].get("type") in ("message", None)
        at += 1
    return at
