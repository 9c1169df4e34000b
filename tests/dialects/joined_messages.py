"""Joins the events of an Anthropic Messages stream, as a client does: the counterpart of `message_events`."""

from __future__ import annotations

from typing import Any

import orjson

from ludus.dialects.conversion import Conversion
from ludus.dialects.messages_stream import _DELTAS
from ludus.errors import Failure


class MessagesStream:
    """Joins the events of a stream into a message. A stream without `message_stop` is a `bad_response`."""

    def __init__(self) -> None:
        self._message: dict[str, Any] | None = None
        self._blocks: dict[int, dict[str, Any]] = {}
        self._pieces: dict[tuple[int, str], list[str]] = {}
        self._ended = False
        self._conversion = Conversion("bad_response", "Messages", None)

    def add(self, event: Any) -> None:
        """Add one event. Events of unknown types are ignored."""
        check = self._conversion
        kind = check.object(event, "event").get("type")
        if kind == "error":
            raise Failure("bad_response", f"the provider failed: {str(event.get('error'))[:200]}")
        if kind == "message_start":
            self._message = dict(check.object(event.get("message"), "message"))
        elif kind == "content_block_start":
            self._blocks[self._index(event)] = dict(check.object(event.get("content_block"), "content_block"))
        elif kind == "content_block_delta":
            self._add_delta(self._index(event), check.object(event.get("delta"), "delta"))
        elif kind == "message_delta" and self._message is not None:
            self._message.update(check.object(event.get("delta"), "delta"))
            usage = check.optional_object(self._message.get("usage"), "usage")
            self._message["usage"] = {**usage, **check.optional_object(event.get("usage"), "usage")}
        elif kind == "message_stop":
            self._ended = True

    def result(self) -> dict[str, Any]:
        """The message."""
        if self._message is None or not self._ended:
            raise Failure("bad_response", "the stream ended before the answer was complete")
        for (index, key), pieces in self._pieces.items():
            block = self._blocks[index]
            text = "".join(pieces)
            if key == "input":
                block[key] = _parsed(text)
            else:
                block[key] = self._conversion.text(block.get(key, ""), f"content[{index}].{key}") + text
        return {**self._message, "content": [block for _, block in sorted(self._blocks.items())]}

    def _index(self, event: dict[str, Any]) -> int:
        return self._conversion.count(event.get("index"), "index")

    def _add_delta(self, index: int, delta: dict[str, Any]) -> None:
        check, kind = self._conversion, delta.get("type")
        block = check.object(self._blocks.get(index), f"content[{index}]")
        if kind == "citations_delta":
            block["citations"] = [*check.objects(block.get("citations"), "citations"), delta.get("citation")]
        elif isinstance(kind, str) and kind in _DELTAS:
            source, target = _DELTAS[kind]
            self._pieces.setdefault((index, target), []).append(check.text(delta.get(source), f"delta.{source}"))


def _parsed(text: str) -> Any:
    """The parsed input of a tool; the text itself if it is not complete JSON."""
    try:
        return orjson.loads(text) if text else {}
    except orjson.JSONDecodeError:
        return text
