"""A Responses object as an answer in Gemini's dialect, whole or in chunks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ludus.dialects.chat_answer import reason_to, written
from ludus.dialects.chat_reasoning import one_text
from ludus.dialects.conversion import Conversion, Item

_REASONS = {"max_output_tokens": "MAX_TOKENS", "content_filter": "SAFETY"}
_TEXTS = {"output_text": "text", "input_text": "text", "text": "text", "refusal": "refusal"}


def answer_to_gemini(data: Any, *, lost: list[str] | None = None) -> dict[str, Any]:
    """Convert a Responses object to an answer of `generateContent`."""
    conversion = Conversion("bad_request", "Gemini", lost)
    response = conversion.object(data, "response")
    parts: list[dict[str, Any]] = []
    for index, kind, item in written(conversion.objects(response.get("output"), "output"), conversion):
        parts += _PARTS[kind](item, f"output[{index}]", conversion)
    reason = reason_to(response, _REASONS, "MAX_TOKENS", conversion) or "STOP"
    candidate = {"content": {"role": "model", "parts": parts}, "finishReason": reason, "index": 0}
    return {
        "candidates": [candidate],
        "usageMetadata": _usage(response.get("usage"), conversion),
        "modelVersion": conversion.optional_text(response.get("model"), "model") or "",
        "responseId": conversion.optional_text(response.get("id"), "id") or "",
    }


def gemini_chunks(answer: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Split an answer into the chunks of a stream: one for each part. The last one has the reason and the usage."""
    candidate = answer["candidates"][0]
    shared = {key: answer[key] for key in ("modelVersion", "responseId")}
    parts = candidate["content"]["parts"] or [{"text": ""}]
    for part in parts[:-1]:
        content = {"role": "model", "parts": [part]}
        yield {"candidates": [{"content": content, "index": 0}], **shared}
    last = {**candidate, "content": {"role": "model", "parts": parts[-1:]}}
    yield {"candidates": [last], "usageMetadata": answer["usageMetadata"], **shared}


def _message_parts(item: Item, path: str, conversion: Conversion) -> list[dict[str, Any]]:
    content = item.get("content")
    if isinstance(content, str):
        return [{"text": content}] if content else []
    parts = []
    for index, part in enumerate(conversion.objects(content, f"{path}.content")):
        here, field = f"{path}.content[{index}]", _TEXTS.get(str(part.get("type")))
        if field is None:
            conversion.lose(here, f"Gemini has no place for a part of type {part.get('type')!s:.60}")
            continue
        if text := conversion.text(part.get(field), f"{here}.{field}"):
            parts.append({"text": text})
    return parts


def _call_parts(item: Item, path: str, conversion: Conversion) -> list[dict[str, Any]]:
    call_id, name, arguments = conversion.call(item, path)
    return [{"functionCall": {"id": call_id, "name": name, "args": arguments}}]


def _reasoning_parts(item: Item, path: str, conversion: Conversion) -> list[dict[str, Any]]:
    text = one_text(item, path, conversion)
    return [{"text": text, "thought": True}] if text else []


_PARTS = {"message": _message_parts, "function_call": _call_parts, "reasoning": _reasoning_parts}


def _usage(usage: Any, conversion: Conversion) -> dict[str, int]:
    if usage is None:
        conversion.lose("usage", "Gemini must state counts of tokens: unknown ones became 0")
    fields = conversion.optional_object(usage, "usage")
    details = conversion.optional_object(fields.get("output_tokens_details"), "usage.output_tokens_details")
    cached = conversion.optional_object(fields.get("input_tokens_details"), "usage.input_tokens_details")
    prompt = conversion.count(fields.get("input_tokens"), "usage.input_tokens")
    output = conversion.count(fields.get("output_tokens"), "usage.output_tokens")
    thoughts = conversion.count(details.get("reasoning_tokens"), "usage.output_tokens_details.reasoning_tokens")
    return {
        "promptTokenCount": prompt,
        "cachedContentTokenCount": conversion.count(cached.get("cached_tokens"), "usage.input_tokens_details"),
        "candidatesTokenCount": max(output - thoughts, 0),
        "thoughtsTokenCount": thoughts,
        "totalTokenCount": prompt + output,
    }
