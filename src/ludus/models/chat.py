"""Chat Completions at the edge: a request out of our items, and our items out of an answer."""

from __future__ import annotations

from typing import Any

from ludus.model import Request
from ludus.outcome import Failure
from ludus.response import Item, function_call, message, reasoning, texts_of

_SAME = (
    "temperature",
    "top_p",
    "parallel_tool_calls",
    "seed",
    "stop",
    "top_logprobs",
    "user",
    "service_tier",
    "frequency_penalty",
    "presence_penalty",
)
_ENDS = {"length": "max_output_tokens", "content_filter": "content_filter"}


def to_chat(request: Request, fixed: dict[str, Any]) -> dict[str, Any]:
    """The body of a Chat Completions request."""
    params = {**fixed, **request.params}
    body: dict[str, Any] = {
        "model": params["model"],
        "messages": to_messages(request.input, params.get("instructions")),
    }
    body.update({key: params[key] for key in _SAME if params.get(key) is not None})
    if params.get("max_output_tokens") is not None:
        body["max_tokens"] = params["max_output_tokens"]
    if tools := [_tool(entry) for entry in params.get("tools") or () if entry.get("type") == "function"]:
        body["tools"] = tools
        choice = params.get("tool_choice")
        if isinstance(choice, dict):
            choice = {"type": "function", "function": {"name": choice.get("name")}}
        if choice is not None:
            body["tool_choice"] = choice
    return body


def to_messages(items: list[Item], instructions: str | None = None) -> list[dict[str, Any]]:
    """Items as chat messages. What the assistant said and called in one turn becomes one message."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": instructions}] if instructions else []
    for item in items:
        kind = item.get("type", "message")
        if kind == "function_call_output":
            messages.append({"role": "tool", "tool_call_id": item["call_id"], "content": item["output"]})
        elif kind == "function_call":
            called = {"name": item["name"], "arguments": item["arguments"]}
            _assistant(messages).setdefault("tool_calls", []).append(
                {"id": item["call_id"], "type": "function", "function": called}
            )
        elif kind == "message" and item.get("role") == "assistant":
            said = _assistant(messages)
            said["content"] = (said["content"] or "") + texts_of(item)
        elif kind == "message":
            role = "system" if item["role"] == "developer" else item["role"]
            messages.append({"role": role, "content": _content(item.get("content"))})
    return messages


def from_chat(data: Any) -> dict[str, Any]:
    """A Chat Completions answer as a Responses object."""
    try:
        choice = data["choices"][0]
        said = choice["message"]
        thought = said.get("reasoning_content") or said.get("reasoning")
        output: list[Item] = [reasoning(str(thought))] if thought else []
        if said.get("content"):
            output.append(message(said["content"]))
        for call in said.get("tool_calls") or ():
            called = call["function"]
            output.append(function_call(called["name"], called["arguments"], call_id=call["id"]))
        if not output:
            output.append(message(""))
        usage = _usage(data.get("usage") or {})
        cut = _ENDS.get(choice.get("finish_reason"))
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        raise Failure("bad_response", f"not a chat completion: {str(data)[:200]}") from error
    return {
        "id": data.get("id", ""),
        "object": "response",
        "created_at": data.get("created", 0),
        "model": data.get("model", ""),
        "status": "incomplete" if cut else "completed",
        "incomplete_details": {"reason": cut} if cut else None,
        "output": output,
        "usage": usage,
    }


def _assistant(messages: list[dict[str, Any]]) -> dict[str, Any]:
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": None})
    return messages[-1]


def _content(content: Any) -> Any:
    if not isinstance(content, list):
        return content
    if all(part.get("type") in ("input_text", "output_text", "text") for part in content):
        return "".join(part.get("text", "") for part in content)
    return [_part(part) for part in content]


def _part(part: dict[str, Any]) -> dict[str, Any]:
    if part.get("type") == "input_image":
        return {"type": "image_url", "image_url": {"url": part.get("image_url")}}
    return {"type": "text", "text": part.get("text", "")}


def _tool(entry: dict[str, Any]) -> dict[str, Any]:
    return {"type": "function", "function": {key: value for key, value in entry.items() if key != "type"}}


def _usage(usage: dict[str, Any]) -> dict[str, Any]:
    if not usage:
        return {}
    return {
        "input_tokens": usage.get("prompt_tokens", 0),
        "output_tokens": usage.get("completion_tokens", 0),
        "total_tokens": usage.get("total_tokens", 0),
    }
