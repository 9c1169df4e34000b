"""Converters between the Responses API and Chat Completions.

| function | from | to |
| --- | --- | --- |
| `to_chat` | the items and parameters of a Responses request | the body of a Chat Completions request |
| `from_chat` | a chat completion | a Responses object |
| `request_from_chat` | the body of a Chat Completions request | the parameters of a Responses request |
| `answer_to_chat` | a Responses object | a chat completion |
| `to_messages`, `from_messages` | items | chat messages, and back |

Each function appends to the list `lost` every field that the other dialect cannot hold. A request field that neither
dialect defines (`top_k`, `chat_template_kwargs`) passes through unchanged.

    lost: list[str] = []
    body = to_chat(items, {"model": "gpt-4.1"}, style=OPENAI, lost=lost)
    lost   # ['input[3].encrypted_content: chat has no place for it']
"""

from __future__ import annotations

from typing import Any

from ludus.dialects.chat_answer import answer_to_chat, from_chat
from ludus.dialects.chat_items import from_messages, to_messages
from ludus.dialects.chat_style import OPEN, OPENAI, ChatStyle
from ludus.dialects.chat_tools import choice_from_chat, choice_to_chat, tools_from_chat, tools_to_chat
from ludus.dialects.conversion import Conversion, Item, has_content

__all__ = [
    "OPEN",
    "OPENAI",
    "ChatStyle",
    "answer_to_chat",
    "from_chat",
    "from_messages",
    "request_from_chat",
    "to_chat",
    "to_messages",
]

_LOGPROBS = "message.output_text.logprobs"

#: Fields of a Responses request that have another name or form in chat.
_CONVERTED = frozenset(
    {"input", "instructions", "max_output_tokens", "text", "reasoning", "tools", "tool_choice", "include"}
    | {"top_logprobs", "parallel_tool_calls", "stream_options"}
)
#: Fields that only a Responses server supports, each with its default value: leaving that out loses nothing.
_UNSUPPORTED = {"background": False, "truncation": "disabled", "max_tool_calls": None, "context_management": None}
#: Fields that refer to a conversation stored on the server.
_STORED = ("previous_response_id", "conversation", "prompt")

_CHAT_CONVERTED = frozenset(
    {"messages", "max_tokens", "max_completion_tokens", "response_format", "verbosity", "reasoning_effort"}
    | {"tools", "tool_choice", "logprobs", "stream_options"}
)
_CHAT_UNSUPPORTED = {"n": 1, "modalities": ["text"], "audio": None, "prediction": None, "web_search_options": None}
_CHAT_UNSUPPORTED |= {"functions": None, "function_call": None}


def to_chat(
    items: list[Item], params: dict[str, Any], *, style: ChatStyle = OPEN, lost: list[str] | None = None
) -> dict[str, Any]:
    """Convert a Responses request, its input and its other fields, to a Chat Completions body."""
    conversion = Conversion("bad_request", "chat", lost)
    params = {key: value for key, value in params.items() if value is not None}
    for key in _STORED:
        if key in params:
            raise conversion.refuse(
                key, "absent, because chat needs the whole conversation in the request", params[key]
            )
    body = _shared_fields(params, _CONVERTED, _UNSUPPORTED, conversion)
    body["messages"] = to_messages(items, style, conversion.lost)
    if has_content(params.get("instructions")):
        instructions = conversion.text(params["instructions"], "instructions")
        body["messages"].insert(0, {"role": "system", "content": instructions})
    if "max_output_tokens" in params:
        body[style.limit] = params["max_output_tokens"]
    _put_text(body, params, conversion)
    _put_reasoning(body, params, conversion)
    _put_logprobs(body, params, conversion)
    _put_tools(body, params, conversion)
    if "stream_options" in params:
        body["stream_options"] = params["stream_options"]
    return body


def request_from_chat(body: Any, *, style: ChatStyle = OPEN, lost: list[str] | None = None) -> dict[str, Any]:
    """Convert a Chat Completions body to the parameters of a Responses request, including `input`."""
    conversion = Conversion("bad_request", "Responses", lost)
    fields = {key: value for key, value in conversion.object(body, "body").items() if value is not None}
    if not isinstance(fields.get("messages"), list):
        raise conversion.refuse("messages", "a list of objects", fields.get("messages"))
    params = _shared_fields(fields, _CHAT_CONVERTED, _CHAT_UNSUPPORTED, conversion)
    params["input"] = from_messages(fields["messages"], style, conversion.lost)
    limits = [fields[key] for key in ("max_completion_tokens", "max_tokens") if key in fields]
    if limits:
        params["max_output_tokens"] = limits[0]
        if limits[-1] != limits[0]:
            conversion.lose("max_tokens", "max_completion_tokens says otherwise")
    if text := _text_config(fields, conversion):
        params["text"] = text
    if "reasoning_effort" in fields:
        others = conversion.optional_object(fields.get("reasoning"), "reasoning")
        params["reasoning"] = {**others, "effort": fields["reasoning_effort"]}
    if fields.get("logprobs"):
        params["include"] = [_LOGPROBS]
    if tools := tools_from_chat(fields.get("tools"), conversion):
        params["tools"] = tools
    if "tool_choice" in fields:
        params["tool_choice"] = choice_from_chat(fields["tool_choice"], conversion)
    options = conversion.optional_object(fields.get("stream_options"), "stream_options")
    if options := {key: value for key, value in options.items() if key != "include_usage"}:  # Responses always sends it
        params["stream_options"] = options
    return params


def _shared_fields(
    fields: dict[str, Any], converted: frozenset[str], unsupported: dict[str, Any], conversion: Conversion
) -> dict[str, Any]:
    """The fields that have the same name and form in both dialects, and those that neither dialect defines."""
    shared = {}
    for key, value in fields.items():
        if key in unsupported:
            if has_content(value) and value != unsupported[key]:
                conversion.lose(key)
        elif key not in converted:
            shared[key] = value
    return shared


def _put_text(body: dict[str, Any], params: dict[str, Any], conversion: Conversion) -> None:
    text = conversion.optional_object(params.get("text"), "text")
    conversion.leftovers(text, {"format", "verbosity"}, "text")
    if text.get("verbosity") is not None:
        body["verbosity"] = text["verbosity"]
    if text.get("format") is not None:
        shape = conversion.object(text["format"], "text.format")
        if shape.get("type") == "json_schema" and "json_schema" not in shape:
            schema = {key: value for key, value in shape.items() if key != "type" and value is not None}
            shape = {"type": "json_schema", "json_schema": schema}
        body["response_format"] = shape


def _text_config(fields: dict[str, Any], conversion: Conversion) -> dict[str, Any]:
    text: dict[str, Any] = {}
    if "response_format" in fields:
        shape = conversion.object(fields["response_format"], "response_format")
        if shape.get("type") == "json_schema":
            schema = conversion.object(shape.get("json_schema"), "response_format.json_schema")
            conversion.leftovers(shape, {"type", "json_schema"}, "response_format")
            shape = {"type": "json_schema", **{key: value for key, value in schema.items() if value is not None}}
        text["format"] = shape
    if "verbosity" in fields:
        text["verbosity"] = fields["verbosity"]
    return text


def _put_reasoning(body: dict[str, Any], params: dict[str, Any], conversion: Conversion) -> None:
    reasoning = conversion.optional_object(params.get("reasoning"), "reasoning")
    conversion.leftovers(reasoning, {"effort"}, "reasoning")
    if reasoning.get("effort") is not None:
        body["reasoning_effort"] = reasoning["effort"]


def _put_logprobs(body: dict[str, Any], params: dict[str, Any], conversion: Conversion) -> None:
    included = params.get("include")
    if included is not None and not isinstance(included, list):
        raise conversion.refuse("include", "a list", included)
    for index, name in enumerate(included or ()):
        if name == _LOGPROBS:
            body["logprobs"] = True
        else:
            conversion.lose(f"include[{index}]", f"chat cannot include {name!s:.60}")
    if "top_logprobs" in params:
        body["logprobs"] = True
        body["top_logprobs"] = params["top_logprobs"]


def _put_tools(body: dict[str, Any], params: dict[str, Any], conversion: Conversion) -> None:
    """Add `tools`, `tool_choice` and `parallel_tool_calls`: chat servers refuse the last two without tools."""
    tools = tools_to_chat(params.get("tools"), conversion)
    if not tools:
        for key in ("tool_choice", "parallel_tool_calls"):
            if key in params:
                conversion.lose(key, "chat refuses it where there are no tools")
        return
    body["tools"] = tools
    if "parallel_tool_calls" in params:
        body["parallel_tool_calls"] = params["parallel_tool_calls"]
    if "tool_choice" in params:
        choice = choice_to_chat(params["tool_choice"], conversion)
        if choice is not None:
            body["tool_choice"] = choice
