"""Chat messages as Inspect writes them in its logs."""

from __future__ import annotations

import json
from typing import Any


def inspect_messages(messages: list[dict[str, Any]], model: str = "") -> list[dict[str, Any]]:
    """Messages of the Chat Completions dialect as those of a log."""
    names: dict[str, str] = {}
    made = []
    for message in messages:
        role = "system" if message["role"] == "developer" else message["role"]
        entry: dict[str, Any] = {"role": role, "content": _content(message)}
        if role == "assistant":
            calls = [_call(call) for call in message.get("tool_calls") or []]
            names |= {call["id"]: call["function"] for call in calls}
            entry |= {"tool_calls": calls} if calls else {}
            entry |= {"model": model} if model else {}
        elif role == "tool":
            call_id = message.get("tool_call_id") or ""
            entry |= {"tool_call_id": call_id, "function": names.get(call_id)}
        made.append(entry)
    return made


def _content(message: dict[str, Any]) -> str | list[dict[str, Any]]:
    content = message.get("content")
    parts: list[dict[str, Any]] = _parts([{"text": content}] if isinstance(content, str) and content else content)
    if refusal := message.get("refusal"):
        parts.append({"type": "text", "text": str(refusal), "refusal": True})
    if thought := message.get("reasoning_content"):
        return [{"type": "reasoning", "reasoning": str(thought)}, *parts]
    if all(part == {"type": "text", "text": part.get("text")} for part in parts) and len(parts) <= 1:
        return str(parts[0]["text"]) if parts else ""
    return parts


def _parts(content: Any) -> list[dict[str, Any]]:
    return [_part(part) for part in content] if isinstance(content, list) else []


def _part(part: dict[str, Any]) -> dict[str, Any]:
    kind = part.get("type")
    if kind == "image_url":
        image = part["image_url"]
        return {"type": "image", "image": image["url"] if isinstance(image, dict) else str(image)}
    if kind == "input_audio":
        sound = part["input_audio"]
        return {"type": "audio", "audio": sound["data"], "format": sound["format"]}
    return {"type": "text", "text": str(part.get("text") or "")}


def _call(call: dict[str, Any]) -> dict[str, Any]:
    function = call["function"]
    made = {"id": call["id"], "function": function["name"], "type": "function"}
    try:
        arguments = json.loads(function["arguments"])
    except ValueError:
        arguments = None
    if isinstance(arguments, dict):
        return {**made, "arguments": arguments}
    return {**made, "arguments": {}, "parse_error": f"not a JSON object: {function['arguments']!s:.500}"}
