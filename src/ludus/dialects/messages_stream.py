"""Anthropic Messages streams: split a message into events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ludus.runtime.encoding import encode

#: For each type of delta: the key of its text, and the key of the block that the text continues.
_DELTAS = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "signature_delta": ("signature", "signature"),
    "input_json_delta": ("partial_json", "input"),
}
_STREAMED = {"text": ("text",), "thinking": ("thinking", "signature")}
_DELTA_OF = {block_key: kind for kind, (_, block_key) in _DELTAS.items()}
_LAST_FIELDS = ("stop_reason", "stop_sequence", "stop_details", "container")


def message_events(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Split a message into the events of a stream."""
    usage = message.get("usage") or {}
    start = {**message, "content": [], "usage": {**usage, "output_tokens": 0}}
    yield {"type": "message_start", "message": {**start, **{key: None for key in _LAST_FIELDS if key in message}}}
    for index, block in enumerate(message.get("content") or ()):
        yield from _block_events(block, index)
    last = {key: message[key] for key in _LAST_FIELDS if key in message}
    yield {"type": "message_delta", "delta": last, "usage": usage}
    yield {"type": "message_stop"}


def _block_events(block: dict[str, Any], index: int) -> Iterator[dict[str, Any]]:
    kind = block.get("type")
    empty: dict[str, Any] = {key: "" for key in _STREAMED.get(str(kind), ()) if key in block}
    pieces = {key: block[key] for key in empty}
    if kind == "tool_use":
        empty, pieces = {"input": {}}, {"input": encode(block.get("input")).decode()}
    yield {"type": "content_block_start", "index": index, "content_block": {**block, **empty}}
    for key, piece in pieces.items():
        delta = {"type": _DELTA_OF[key], _DELTAS[_DELTA_OF[key]][0]: piece}
        yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}
