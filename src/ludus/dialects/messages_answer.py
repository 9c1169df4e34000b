"""Converters between a Messages answer and a Responses object.

A Messages answer keeps the order of thinking, text and tool use, but has no creation time. Its `input_tokens` excludes
tokens read from or written to a cache; in Responses `input_tokens` includes them.
"""

from __future__ import annotations

from typing import Any

from ludus.dialects.chat_answer import ECHOED_FIELDS, RESPONSE_FIELDS, as_output, reason_to, response_object, written
from ludus.dialects.chat_reasoning import one_text
from ludus.dialects.conversion import Conversion, Item, has_content
from ludus.dialects.messages_blocks import Block, assistant_items
from ludus.errors import Failure

_INCOMPLETE = {"max_tokens": "max_output_tokens", "refusal": "content_filter", "pause_turn": "pause_turn"}
_STOPS = {reason: stop for stop, reason in _INCOMPLETE.items()}
_DONE = (None, "end_turn", "tool_use", "stop_sequence")

_ANSWER = frozenset({"id", "type", "role", "model", "content", "stop_reason", "usage", "error"})
_MESSAGE = frozenset({"type", "role", "content", "id", "status"})
_CALL = frozenset({"type", "call_id", "name", "arguments", "id", "status"})
_REASONING = frozenset({"type", "summary", "content", "encrypted_content", "id", "status"})
_PART = frozenset({"type", "text"})
_COUNTS = frozenset(
    {"input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"}
    | {"output_tokens_details"}
)
_OUR_COUNTS = frozenset(
    {"input_tokens", "output_tokens", "total_tokens", "input_tokens_details", "output_tokens_details"}
)


def answer_from_messages(data: Any, *, lost: list[str] | None = None) -> dict[str, Any]:
    """Convert a Messages answer to a Responses object. Invalid input is a `bad_response` failure."""
    conversion = Conversion("bad_response", "Responses", lost)
    answer = conversion.object(data, "answer")
    if answer.get("type") == "error" or has_content(answer.get("error")):
        raise Failure("bad_response", f"the provider failed: {str(answer.get('error'))[:200]}")
    items = assistant_items(answer.get("content"), "content", conversion)
    answer_id = conversion.optional_text(answer.get("id"), "id") or ""
    reason = conversion.optional_text(answer.get("stop_reason"), "stop_reason")
    if reason == "model_context_window_exceeded":
        conversion.lose("stop_reason", "Responses cannot say that the context was full: it became max_output_tokens")
        reason = "max_tokens"
    incomplete = None if reason in _DONE else _INCOMPLETE.get(str(reason), str(reason)[:60])
    output = as_output(items, answer_id.removeprefix("msg_")[:48], incomplete is not None)
    return {
        **{key: value for key, value in answer.items() if key not in _ANSWER and value is not None},
        **response_object(answer_id, 0, answer.get("model"), incomplete, output),
        "usage": _usage_from(answer.get("usage"), conversion),
    }


def answer_to_messages(data: Any, *, lost: list[str] | None = None) -> dict[str, Any]:
    """Convert a Responses object to a Messages answer."""
    conversion = Conversion("bad_request", "Messages", lost)
    response = conversion.object(data, "response")
    reason = reason_to(response, _STOPS, "max_tokens", conversion)
    items = conversion.objects(response.get("output"), "output")
    content: list[Block] = []
    before = ""
    for index, kind, item in written(items, conversion):
        path = f"output[{index}]"
        if item.get("status") not in (None, "completed") and not (reason and index == len(items) - 1):
            conversion.lose(f"{path}.status")
        blocks = _BLOCKS[kind](item, path, conversion)
        if kind == before == "message":
            conversion.lose(path, "it was joined to the message before it")
        elif not blocks and (kind != "message" or len(items) > 1):
            conversion.lose(path, "there is nothing in it")
        before = kind if blocks else before
        content += blocks
    stopped = conversion.optional_text(response.get("stop_sequence"), "stop_sequence")
    called = any(block["type"] == "tool_use" for block in content)
    return {
        **{key: value for key, value in response.items() if key not in RESPONSE_FIELDS | ECHOED_FIELDS},
        "id": conversion.optional_text(response.get("id"), "id") or "",
        "type": "message",
        "role": "assistant",
        "model": conversion.optional_text(response.get("model"), "model") or "",
        "content": content,
        "stop_reason": reason or ("stop_sequence" if stopped is not None else "tool_use" if called else "end_turn"),
        "stop_sequence": stopped,
        "usage": _usage_to(response.get("usage"), conversion),
    }


def _message_blocks(item: Item, path: str, conversion: Conversion) -> list[Block]:
    conversion.leftovers(item, _MESSAGE, path)
    content = item.get("content")
    if isinstance(content, str):
        content = [{"type": "output_text", "text": content}]
    blocks = []
    parts = conversion.objects(content, f"{path}.content")
    for index, part in enumerate(parts):
        here, kind = f"{path}.content[{index}]", part.get("type")
        if kind == "refusal":
            conversion.lose(here, "Messages has no place for a refusal: it became text")
            text = conversion.text(part.get("refusal"), f"{here}.refusal")
        elif kind in ("output_text", "input_text", "text"):
            conversion.leftovers(part, _PART, here)
            text = conversion.text(part.get("text"), f"{here}.text")
        else:
            conversion.lose(here, f"Messages has no place for a part of type {kind!s:.60}")
            continue
        if text:
            blocks.append({"type": "text", "text": text})
        elif len(parts) > 1:
            conversion.lose(here, "Messages refuses an empty text")
    return blocks


def _call_blocks(item: Item, path: str, conversion: Conversion) -> list[Block]:
    conversion.leftovers(item, _CALL, path)
    call_id, name, arguments = conversion.call(item, path)
    return [{"type": "tool_use", "id": call_id, "name": name, "input": arguments}]


def _reasoning_blocks(item: Item, path: str, conversion: Conversion) -> list[Block]:
    conversion.leftovers(item, _REASONING, path)
    encrypted = conversion.optional_text(item.get("encrypted_content"), f"{path}.encrypted_content")
    text = one_text(item, path, conversion)
    if text is not None:
        return [{"type": "thinking", "thinking": text, "signature": encrypted or ""}]
    return [{"type": "redacted_thinking", "data": encrypted}] if encrypted else []


_BLOCKS = {"message": _message_blocks, "function_call": _call_blocks, "reasoning": _reasoning_blocks}


def _usage_from(usage: Any, conversion: Conversion) -> dict[str, Any] | None:
    if usage is None:
        return None
    fields = conversion.object(usage, "usage")
    counts = {key: conversion.count(fields.get(key), f"usage.{key}") for key in _COUNTS - {"output_tokens_details"}}
    details = conversion.optional_object(fields.get("output_tokens_details"), "usage.output_tokens_details")
    conversion.leftovers(details, {"thinking_tokens"}, "usage.output_tokens_details")
    thinking = conversion.count(details.get("thinking_tokens"), "usage.output_tokens_details.thinking_tokens")
    read, written = counts["cache_read_input_tokens"], counts["cache_creation_input_tokens"]
    total_input, output = counts["input_tokens"] + read + written, counts["output_tokens"]
    return {
        **{key: value for key, value in fields.items() if key not in _COUNTS and value is not None},
        "input_tokens": total_input,
        "input_tokens_details": {"cached_tokens": read, "cache_write_tokens": written},
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": thinking},
        "total_tokens": total_input + output,
    }


def _usage_to(usage: Any, conversion: Conversion) -> dict[str, Any]:
    if usage is None:
        conversion.lose("usage", "Messages must state counts of tokens: unknown ones became 0")
    fields = conversion.optional_object(usage, "usage")
    input_details = conversion.optional_object(fields.get("input_tokens_details"), "usage.input_tokens_details")
    output_details = conversion.optional_object(fields.get("output_tokens_details"), "usage.output_tokens_details")
    conversion.leftovers(input_details, {"cached_tokens", "cache_write_tokens"}, "usage.input_tokens_details")
    conversion.leftovers(output_details, {"reasoning_tokens"}, "usage.output_tokens_details")
    read = conversion.count(input_details.get("cached_tokens"), "usage.input_tokens_details.cached_tokens")
    written = conversion.count(input_details.get("cache_write_tokens"), "usage.input_tokens_details.cache_write_tokens")
    total_input = conversion.count(fields.get("input_tokens"), "usage.input_tokens")
    thinking = conversion.count(output_details.get("reasoning_tokens"), "usage.output_tokens_details.reasoning_tokens")
    return {
        **{key: value for key, value in fields.items() if key not in _OUR_COUNTS and value is not None},
        "input_tokens": max(total_input - read - written, 0),
        "cache_read_input_tokens": read,
        "cache_creation_input_tokens": written,
        "output_tokens": conversion.count(fields.get("output_tokens"), "usage.output_tokens"),
        "output_tokens_details": {"thinking_tokens": thinking},
    }
