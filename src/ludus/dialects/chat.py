"""Chat Completions at the edge.

| function | from | to |
| --- | --- | --- |
| `to_chat` | our request | the body to post |
| `from_chat` | the answer in chat | a Responses object |
| `request_from_chat` | a body that was posted to us | the parameters of a Responses request |
| `answer_to_chat` | a Responses object | the answer in chat |
| `to_messages`, `from_messages` | items | chat messages, and back |

Each takes a list, `lost`, and adds to it what the other dialect has no place for. A field of a request that neither
dialect defines (`top_k`, `chat_template_kwargs`) goes through as it is.

    lost: list[str] = []
    body = to_chat(request, {"model": "gpt-4.1"}, style=OPENAI, lost=lost)
    lost   # ['input[3].encrypted_content: chat has no place for it']
"""

from __future__ import annotations

from typing import Any

from ludus.dialects.chat_answer import answer_to_chat, from_chat
from ludus.dialects.chat_items import from_messages, to_messages
from ludus.dialects.chat_style import OPEN, OPENAI, ChatStyle
from ludus.dialects.chat_tools import choice_from_chat, choice_to_chat, tools_from_chat, tools_to_chat
from ludus.dialects.conversion import Conversion, says
from ludus.model import Request

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

#: Fields of a Responses request that are spelled otherwise in chat.
_RESPELLED = frozenset(
    {"input", "instructions", "max_output_tokens", "text", "reasoning", "tools", "tool_choice", "include"}
    | {"top_logprobs", "parallel_tool_calls", "stream_options"}
)
#: Fields of a Responses request that only a server of Responses can honour, and the value that asks for nothing.
_NO_PLACE = {"background": False, "truncation": "disabled", "max_tool_calls": None, "context_management": None}
#: Fields that stand for parts of the conversation which are not in the request.
_ELSEWHERE = ("previous_response_id", "conversation", "prompt")

_CHAT_RESPELLED = frozenset(
    {"messages", "max_tokens", "max_completion_tokens", "response_format", "verbosity", "reasoning_effort"}
    | {"tools", "tool_choice", "logprobs", "stream_options"}
)
_CHAT_NO_PLACE = {"n": 1, "modalities": ["text"], "audio": None, "prediction": None, "web_search_options": None}
_CHAT_NO_PLACE |= {"functions": None, "function_call": None}


def to_chat(
    request: Request, fixed: dict[str, Any], *, style: ChatStyle = OPEN, lost: list[str] | None = None
) -> dict[str, Any]:
    """The body of a Chat Completions request; `fixed` are the fields that apply where the request names none."""
    conversion = Conversion("bad_request", "chat", lost)
    params = {**fixed, **{key: value for key, value in request.params.items() if value is not None}}
    for key in _ELSEWHERE:
        if key in params:
            raise conversion.refuse(
                key, "absent, because chat needs the whole conversation in the request", params[key]
            )
    body = _kept(params, _RESPELLED, _NO_PLACE, conversion)
    body["messages"] = to_messages(request.input, style, conversion.lost)
    if says(params.get("instructions")):
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
    """The parameters of a Responses request, `input` among them, out of the body of a Chat Completions request."""
    conversion = Conversion("bad_request", "Responses", lost)
    given = {key: value for key, value in conversion.object(body, "body").items() if value is not None}
    if not isinstance(given.get("messages"), list):
        raise conversion.refuse("messages", "a list of objects", given.get("messages"))
    params = _kept(given, _CHAT_RESPELLED, _CHAT_NO_PLACE, conversion)
    params["input"] = from_messages(given["messages"], style, conversion.lost)
    limits = [given[key] for key in ("max_completion_tokens", "max_tokens") if key in given]
    if limits:
        params["max_output_tokens"] = limits[0]
        if limits[-1] != limits[0]:
            conversion.lose("max_tokens", "max_completion_tokens says otherwise")
    if text := _text_config(given, conversion):
        params["text"] = text
    if "reasoning_effort" in given:
        others = conversion.optional_object(given.get("reasoning"), "reasoning")
        params["reasoning"] = {**others, "effort": given["reasoning_effort"]}
    if given.get("logprobs"):
        params["include"] = [_LOGPROBS]
    if tools := tools_from_chat(given.get("tools"), conversion):
        params["tools"] = tools
    if "tool_choice" in given:
        params["tool_choice"] = choice_from_chat(given["tool_choice"], conversion)
    options = conversion.optional_object(given.get("stream_options"), "stream_options")
    if options := {key: value for key, value in options.items() if key != "include_usage"}:  # Responses always tells it
        params["stream_options"] = options
    return params


def _kept(
    given: dict[str, Any], respelled: frozenset[str], no_place: dict[str, Any], conversion: Conversion
) -> dict[str, Any]:
    """The fields that both dialects spell alike, and those that neither knows."""
    kept = {}
    for key, value in given.items():
        if key in no_place:
            if says(value) and value != no_place[key]:
                conversion.lose(key)
        elif key not in respelled:
            kept[key] = value
    return kept


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


def _text_config(given: dict[str, Any], conversion: Conversion) -> dict[str, Any]:
    text: dict[str, Any] = {}
    if "response_format" in given:
        shape = conversion.object(given["response_format"], "response_format")
        if shape.get("type") == "json_schema":
            schema = conversion.object(shape.get("json_schema"), "response_format.json_schema")
            conversion.leftovers(shape, {"type", "json_schema"}, "response_format")
            shape = {"type": "json_schema", **{key: value for key, value in schema.items() if value is not None}}
        text["format"] = shape
    if "verbosity" in given:
        text["verbosity"] = given["verbosity"]
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
    """Tools, and what is said about their use: chat servers refuse the second without the first."""
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
