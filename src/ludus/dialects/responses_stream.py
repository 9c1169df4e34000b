"""A Responses object as a stream of events: added up, and taken apart."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ludus.dialects.conversion import Conversion
from ludus.errors import Failure
from ludus.response import Item

_ENDS = {"completed": "response.completed", "incomplete": "response.incomplete", "failed": "response.failed"}
_LAST = frozenset(_ENDS.values())


class ResponsesStream:
    """Takes the whole response out of a stream of events.

    The event that ends a stream repeats everything before it, except on servers that leave its output empty: there,
    the items that the stream finished fill it. A stream without that event is a `bad_response`.
    """

    def __init__(self) -> None:
        self._response: dict[str, Any] | None = None
        self._status = ""
        self._items: dict[int, Item] = {}
        self._conversion = Conversion("bad_response", "Responses", None)

    def add(self, event: Any) -> None:
        """Take in one event."""
        check = self._conversion
        kind = check.object(event, "event").get("type")
        if kind == "error":
            raise Failure("bad_response", f"the provider failed: {str(event.get('message') or event)[:200]}")
        if kind == "response.output_item.done":
            index = check.count(event.get("output_index", len(self._items)), "output_index")
            self._items[index] = check.object(event.get("item"), "item")
        elif isinstance(kind, str) and kind in _LAST:
            self._response = check.object(event.get("response"), "response")
            self._status = kind.removeprefix("response.")

    def result(self) -> dict[str, Any]:
        """The response."""
        if self._response is None:
            raise Failure("bad_response", "the stream ended before the answer did")
        response = self._response
        if response.get("status") not in (*_ENDS, None):  # the event that ended it knows better
            response = {**response, "status": self._status}
        if not response.get("output") and self._items:
            return {**response, "output": [item for _, item in sorted(self._items.items())]}
        return response


def response_events(response: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The events of a stream that says what a response says, in the order in which a server sends them."""
    bare = {**response, "status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    for number, event in enumerate(_events(response, bare)):
        yield {**event, "sequence_number": number}


def _events(response: dict[str, Any], bare: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {"type": "response.created", "response": bare}
    yield {"type": "response.in_progress", "response": bare}
    for index, item in enumerate(response.get("output") or ()):
        place = {"item_id": item.get("id") or f"item_{index}", "output_index": index}
        yield {"type": "response.output_item.added", "output_index": index, "item": _begun(item)}
        if item.get("type") == "function_call":
            told = "response.function_call_arguments"
            yield {"type": f"{told}.delta", **place, "delta": item["arguments"]}
            yield {"type": f"{told}.done", **place, "arguments": item["arguments"], "name": item["name"]}
        for position, part in enumerate(_parts(item, "summary")):
            yield from _summary_events(part, {**place, "summary_index": position})
        for position, part in enumerate(_parts(item, "content")):
            yield from _part_events(part, {**place, "content_index": position})
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    status = response.get("status")
    yield {"type": _ENDS.get(str(status), "response.completed"), "response": response}


def _begun(item: Item) -> Item:
    """An item as it is announced, before its content."""
    empty: Item = {key: [] for key in ("content", "summary") if _parts(item, key)}
    if item.get("type") == "function_call":
        empty["arguments"] = ""
    if item.get("type") in ("message", "function_call"):
        empty["status"] = "in_progress"
    return {**item, **empty}


def _parts(item: Item, key: str) -> list[dict[str, Any]]:
    parts = item.get(key) if item.get("type") in ("message", "reasoning") else None
    return [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []


def _summary_events(part: dict[str, Any], place: dict[str, Any]) -> Iterator[dict[str, Any]]:
    told = "response.reasoning_summary"
    text = part.get("text", "")
    yield {"type": f"{told}_part.added", **place, "part": {**part, "text": ""}}
    yield {"type": f"{told}_text.delta", **place, "delta": text}
    yield {"type": f"{told}_text.done", **place, "text": text}
    yield {"type": f"{told}_part.done", **place, "part": part}


#: The parts that are streamed: the key of their text, the name of their events, and what such an event holds besides.
_STREAMED: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "output_text": ("text", "output_text", ("logprobs",)),
    "refusal": ("refusal", "refusal", ()),
    "reasoning_text": ("text", "reasoning_text", ()),
}


def _part_events(part: dict[str, Any], place: dict[str, Any]) -> Iterator[dict[str, Any]]:
    key, name, besides = _STREAMED.get(str(part.get("type")), ("", "", ()))
    begun = {**part, **({key: ""} if key else {}), **({"annotations": [], "logprobs": []} if besides else {})}
    yield {"type": "response.content_part.added", **place, "part": begun}
    if key:
        text = part.get(key, "")
        more = {field: part.get(field) or [] for field in besides}
        yield {"type": f"response.{name}.delta", **place, "delta": text, **more}
        notes = part.get("annotations")
        for index, note in enumerate(notes if isinstance(notes, list) else ()):
            told = {"annotation_index": index, "annotation": note}
            yield {"type": "response.output_text.annotation.added", **place, **told}
        yield {"type": f"response.{name}.done", **place, key: text, **more}
    yield {"type": "response.content_part.done", **place, "part": part}
