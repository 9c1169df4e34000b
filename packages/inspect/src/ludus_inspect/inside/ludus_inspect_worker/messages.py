"""Inspect's messages as items of the Responses API, and answers back as Inspect's."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from inspect_ai.model import (
    ChatCompletionChoice,
    ChatMessage,
    ChatMessageAssistant,
    ChatMessageTool,
    Content,
    ContentAudio,
    ContentDocument,
    ContentImage,
    ContentReasoning,
    ContentText,
    GenerateConfig,
    ModelOutput,
    ModelUsage,
)
from inspect_ai.tool import ToolChoice, ToolFunction, ToolInfo

from .private import parse_tool_call

Item = dict[str, Any]

#: Fields of a request that have the same meaning and another name.
_FIELDS = {
    "max_tokens": "max_output_tokens",
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "seed": "seed",
    "stop_seqs": "stop",
    "frequency_penalty": "frequency_penalty",
    "presence_penalty": "presence_penalty",
    "logit_bias": "logit_bias",
    "parallel_tool_calls": "parallel_tool_calls",
}
_INCOMPLETE = {"max_output_tokens": "max_tokens", "content_filter": "content_filter"}


def items_of(messages: Iterable[ChatMessage]) -> list[Item]:
    """Messages as items."""
    return [item for message in messages for item in items_of_message(message)]


def items_of_message(message: ChatMessage) -> list[Item]:
    """One message as items: a turn of the model may have thoughts, a text and calls."""
    if isinstance(message, ChatMessageAssistant):
        return _turn(message)
    if isinstance(message, ChatMessageTool):
        text = f"Error: {message.error.message}" if message.error else _output(message.content)
        return [{"type": "function_call_output", "call_id": message.tool_call_id or "", "output": text}]
    return [{"role": message.role, "content": _parts(message.content)}]


def request_of(
    messages: list[ChatMessage], tools: list[ToolInfo], choice: ToolChoice, config: GenerateConfig
) -> dict[str, Any]:
    """What Inspect asks a model for, as the parameters of a Responses request, without its input."""
    values = {ours: getattr(config, theirs) for theirs, ours in _FIELDS.items()}
    request = {name: value for name, value in values.items() if value is not None}
    if tools:
        request["tools"] = [_tool(tool) for tool in tools]
        if choice != "auto":
            request["tool_choice"] = _choice(choice)
    effort = {"effort": config.reasoning_effort, "summary": config.reasoning_summary}
    if reasoning := {name: value for name, value in effort.items() if value not in (None, "none")}:
        request["reasoning"] = reasoning
    if config.response_schema is not None:
        schema = config.response_schema
        form = {"type": "json_schema", "name": schema.name, "schema": _schema(schema.json_schema)}
        request["text"] = {"format": {**form, **({"strict": schema.strict} if schema.strict is not None else {})}}
    return {**request, **(config.extra_body or {})}


def output_of(answer: dict[str, Any], tools: list[ToolInfo], name: str) -> ModelOutput:
    """An answer of the Responses API as Inspect's."""
    content: list[Content] = []
    calls = []
    for item in answer.get("output") or []:
        kind = item.get("type", "message")
        if kind == "reasoning":
            content.append(_thought(item))
        elif kind == "function_call":
            calls.append(parse_tool_call(item.get("call_id") or "", item["name"], item.get("arguments"), tools))
        elif kind == "message":
            content += [_said(part) for part in _listed(item.get("content"))]
    texts = [part.text for part in content if isinstance(part, ContentText)]
    plain = len(content) == len(texts) <= 1 and not any(getattr(part, "refusal", None) for part in content)
    message = ChatMessageAssistant(
        content="".join(texts) if plain else content, tool_calls=calls or None, model=name, source="generate"
    )
    cut = (answer.get("incomplete_details") or {}).get("reason")
    stop = _INCOMPLETE.get(str(cut)) or ("tool_calls" if calls else "stop")
    return ModelOutput(
        model=name,
        choices=[ChatCompletionChoice(message=message, stop_reason=stop)],  # type: ignore[arg-type]
        usage=_usage(answer.get("usage")),
    )


def _turn(message: ChatMessageAssistant) -> list[Item]:
    items: list[Item] = []
    said: list[Item] = []
    for part in message.content_list:
        if isinstance(part, ContentReasoning):
            summary = [{"type": "summary_text", "text": part.summary or part.text}]
            items.append({"type": "reasoning", "summary": summary})
        elif isinstance(part, ContentText) and (part.text or not message.tool_calls):
            said.append({"type": "output_text", "text": part.text, "annotations": []})
    if said:
        items.append({"type": "message", "role": "assistant", "content": said})
    for call in message.tool_calls or []:
        arguments = json.dumps(call.arguments)
        items.append({"type": "function_call", "call_id": call.id, "name": call.function, "arguments": arguments})
    return items


def _parts(content: str | list[Content]) -> str | list[Item]:
    if isinstance(content, str):
        return content
    return [part for part in map(_part, content) if part is not None]


def _part(part: Content) -> Item | None:
    if isinstance(part, ContentText):
        return {"type": "input_text", "text": part.text}
    if isinstance(part, ContentImage):
        return {"type": "input_image", "image_url": part.image, "detail": part.detail}
    if isinstance(part, ContentAudio):
        data = part.audio.partition(";base64,")[2] or part.audio
        return {"type": "input_audio", "input_audio": {"data": data, "format": part.format}}
    if isinstance(part, ContentDocument):
        return {"type": "input_file", "filename": part.filename, "file_data": part.document}
    if isinstance(part, ContentReasoning):
        return {"type": "input_text", "text": part.text}
    raise ValueError(f"content of the type {part.type} has no form in a request")


def _output(content: str | list[Content]) -> str | list[Item]:
    parts = _parts(content)
    if isinstance(parts, list) and all(part["type"] == "input_text" for part in parts):
        return "\n".join(part["text"] for part in parts)
    return parts


def _tool(tool: ToolInfo) -> Item:
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": _schema(tool.parameters),
        "strict": False,
    }


def _schema(schema: Any) -> dict[str, Any]:
    dumped: dict[str, Any] = schema.model_dump(exclude_none=True, by_alias=True)
    return dumped


def _choice(choice: ToolChoice) -> Any:
    if isinstance(choice, ToolFunction):
        return {"type": "function", "name": choice.name}
    return "required" if choice == "any" else choice


def _thought(item: Item) -> ContentReasoning:
    texts = [str(part.get("text", "")) for part in item.get("content") or []]
    summary = [str(part.get("text", "")) for part in item.get("summary") or []]
    hidden = item.get("encrypted_content")
    return ContentReasoning(
        reasoning="\n".join(texts or summary) or (hidden or ""),
        summary="\n".join(summary) if texts and summary else None,
        redacted=bool(hidden) and not (texts or summary),
    )


def _listed(content: Any) -> list[Item]:
    return [{"type": "output_text", "text": content}] if isinstance(content, str) else content or []


def _said(part: Item) -> Content:
    if part.get("type") == "refusal":
        return ContentText(text=str(part.get("refusal", "")), refusal=True)
    return ContentText(text=str(part.get("text", "")))


def _usage(usage: dict[str, Any] | None) -> ModelUsage | None:
    if not usage:
        return None
    given, made = usage.get("input_tokens") or 0, usage.get("output_tokens") or 0
    cached = (usage.get("input_tokens_details") or {}).get("cached_tokens") or 0
    thought = (usage.get("output_tokens_details") or {}).get("reasoning_tokens")
    return ModelUsage(
        input_tokens=given - cached,
        output_tokens=made,
        total_tokens=usage.get("total_tokens") or given + made,
        input_tokens_cache_read=cached or None,
        reasoning_tokens=thought,
    )
