"""Responses streams: join events into a response, and split a response into events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ludus.dialects.conversion import Conversion, Item
from ludus.errors import Failure

_ENDS = {"completed": "response.completed", "incomplete": "response.incomplete", "failed": "response.failed"}
_LAST = frozenset(_ENDS.values())


class ResponsesStream:
    """Reads the whole response from a stream of events.

    The last event holds the whole response. Some servers leave its output empty: then the items of earlier
    `output_item.done` events fill it. A stream without a last event is a `bad_response`.
    """

    def __init__(self) -> None:
        self._response: dict[str, Any] | None = None
        self._status = ""
        self._items: dict[int, Item] = {}
        self._conversion = Conversion("bad_response", "Responses", None)

    def add(self, event: Any) -> None:
        """Add one event."""
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
            raise Failure("bad_response", "the stream ended before the answer was complete")
        response = self._response
        if response.get("status") not in (*_ENDS, None):  # the type of the last event is reliable
            response = {**response, "status": self._status}
        if not response.get("output") and self._items:
            return {**response, "output": [item for _, item in sorted(self._items.items())]}
        return response


def response_events(response: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Split a response into stream events, in the order in which a server sends them."""
    bare = {**response, "status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    for number, event in enumerate(_events(response, bare)):
        yield {**event, "sequence_number": number}


def _events(response: dict[str, Any], bare: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield {"type": "response.created", "response": bare}
    yield {"type": "response.in_progress", "response": bare}
    for index, item in enumerate(response.get("output") or ()):
        place = {"item_id": item.get("id") or f"item_{index}", "output_index": index}
        yield {"type": "response.output_item.added", "output_index": index, "item": _empty_item(item)}
        if item.get("type") == "function_call":
            name = "response.function_call_arguments"
            yield {"type": f"{name}.delta", **place, "delta": item["arguments"]}
            yield {"type": f"{name}.done", **place, "arguments": item["arguments"], "name": item["name"]}
        elif item.get("type") == "custom_tool_call":
            name = "response.custom_tool_call_input"
            yield {"type": f"{name}.delta", **place, "delta": item["input"]}
            yield {"type": f"{name}.done", **place, "input": item["input"]}
        for position, part in enumerate(_parts(item, "summary")):
            yield from _summary_events(part, {**place, "summary_index": position})
        for position, part in enumerate(_parts(item, "content")):
            yield from _part_events(part, {**place, "content_index": position})
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    status = response.get("status")
    yield {"type": _ENDS.get(str(status), "response.completed"), "response": response}


def _empty_item(item: Item) -> Item:
    """An item without its content, as `output_item.added` announces it."""
    empty: Item = {key: [] for key in ("content", "summary") if _parts(item, key)}
    if (text := {"function_call": "arguments", "custom_tool_call": "input"}.get(str(item.get("type")))) is not None:
        empty[text] = ""
    if item.get("type") in ("message", "function_call"):
        empty["status"] = "in_progress"
    return {**item, **empty}


def _parts(item: Item, key: str) -> list[dict[str, Any]]:
    parts = item.get(key) if item.get("type") in ("message", "reasoning") else None
    return [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []


def _summary_events(part: dict[str, Any], place: dict[str, Any]) -> Iterator[dict[str, Any]]:
    name = "response.reasoning_summary"
    text = part.get("text", "")
    yield {"type": f"{name}_part.added", **place, "part": {**part, "text": ""}}
    yield {"type": f"{name}_text.delta", **place, "delta": text}
    yield {"type": f"{name}_text.done", **place, "text": text}
    yield {"type": f"{name}_part.done", **place, "part": part}


#: The types of streamed parts: the key of the text, the name of the events, and further fields of those events.
_STREAMED: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "output_text": ("text", "output_text", ("logprobs",)),
    "refusal": ("refusal", "refusal", ()),
    "reasoning_text": ("text", "reasoning_text", ()),
}


def _part_events(part: dict[str, Any], place: dict[str, Any]) -> Iterator[dict[str, Any]]:
    key, name, extra_fields = _STREAMED.get(str(part.get("type")), ("", "", ()))
    empty = {**part, **({key: ""} if key else {}), **({"annotations": [], "logprobs": []} if extra_fields else {})}
    yield {"type": "response.content_part.added", **place, "part": empty}
    if key:
        text = part.get(key, "")
        extra = {field: part.get(field) or [] for field in extra_fields}
        yield {"type": f"response.{name}.delta", **place, "delta": text, **extra}
        notes = part.get("annotations")
        for index, note in enumerate(notes if isinstance(notes, list) else ()):
            added = {"annotation_index": index, "annotation": note}
            yield {"type": "response.output_text.annotation.added", **place, **added}
        yield {"type": f"response.{name}.done", **place, key: text, **extra}
    yield {"type": "response.content_part.done", **place, "part": part}
