"""Converters between the Responses API and Anthropic Messages.

| function | from | to |
| --- | --- | --- |
| `request_from_messages` | the body of a Messages request | the parameters of a Responses request |
| `answer_to_messages` | a Responses object | a Messages answer |
| `answer_from_messages` | a Messages answer | a Responses object |

Each function appends to the list `lost` every field that the other dialect cannot hold. The arguments of a call are
JSON text in Responses and an object in Messages, so a round trip may change their whitespace.
"""

from __future__ import annotations

from typing import Any

from ludus.dialects.conversion import Conversion, Item, has_content
from ludus.dialects.messages_answer import answer_from_messages, answer_to_messages
from ludus.dialects.messages_blocks import assistant_items, parts_content, user_items
from ludus.dialects.messages_tools import client_function

__all__ = ["answer_from_messages", "answer_to_messages", "request_from_messages"]

_CONVERTED = frozenset(
    {"messages", "system", "max_tokens", "stop_sequences", "tools", "tool_choice", "metadata", "output_config"}
    | {"service_tier"}
)
#: Fields that only Anthropic's servers support.
_UNSUPPORTED = frozenset(
    {"betas", "cache_control", "container", "context_management", "diagnostics", "inference_geo", "mcp_servers"}
    | {"speed", "thinking", "user_profile_id", "workspace_id"}
)
_TOOL = frozenset({"type", "name", "description", "input_schema", "strict"})
_TOOL_FIELDS = (("name", "name"), ("description", "description"), ("input_schema", "parameters"), ("strict", "strict"))
_CHOICES = {"auto": "auto", "any": "required", "none": "none"}


def request_from_messages(body: Any, *, lost: list[str] | None = None) -> dict[str, Any]:
    """Convert the body of a Messages request to the parameters of a Responses request, including `input`."""
    conversion = Conversion("bad_request", "Responses", lost)
    fields = {key: value for key, value in conversion.object(body, "body").items() if value is not None}
    if not isinstance(fields.get("messages"), list):
        raise conversion.refuse("messages", "a list of objects", fields.get("messages"))
    params = {key: value for key, value in fields.items() if key not in _CONVERTED and key not in _UNSUPPORTED}
    for key in fields:
        if key in _UNSUPPORTED and has_content(fields[key]) and fields[key] != {"type": "disabled"}:
            conversion.lose(key)
    params["input"] = _items(fields["messages"], conversion)
    _put_system(params, fields.get("system"), conversion)
    for theirs, ours in (("max_tokens", "max_output_tokens"), ("stop_sequences", "stop")):
        if has_content(fields.get(theirs)):
            params[ours] = fields[theirs]
    if "service_tier" in fields:
        params["service_tier"] = "default" if fields["service_tier"] == "standard_only" else fields["service_tier"]
    metadata = conversion.optional_object(fields.get("metadata"), "metadata")
    conversion.leftovers(metadata, {"user_id"}, "metadata")
    if metadata.get("user_id") is not None:
        params["user"] = metadata["user_id"]
    _put_output_config(params, fields.get("output_config"), conversion)
    if tools := _tools(fields.get("tools"), conversion):
        params["tools"] = tools
    _put_choice(params, fields.get("tool_choice"), conversion)
    return params


def items_of_message(message: Any) -> list[Item]:
    """Convert one message."""
    return _items([message], Conversion("bad_request", "Responses", None))


def _items(messages: list[Any], conversion: Conversion) -> list[Item]:
    items: list[Item] = []
    for index, message in enumerate(conversion.objects(messages, "messages")):
        path = f"messages[{index}]"
        conversion.leftovers(message, {"role", "content"}, path)
        role = conversion.text(message.get("role"), f"{path}.role")
        if role == "assistant":
            items += assistant_items(message.get("content"), f"{path}.content", conversion)
        else:
            items += user_items(message.get("content"), role, f"{path}.content", conversion)
    return items


def _put_system(params: dict[str, Any], system: Any, conversion: Conversion) -> None:
    """A system prompt of one text becomes `instructions`; one of several parts becomes the first message."""
    content = (
        system if isinstance(system, str) else parts_content([] if system is None else system, "system", conversion)
    )
    if isinstance(content, str) and content:
        params["instructions"] = content
    elif content:
        params["input"].insert(0, {"type": "message", "role": "system", "content": content})


def _put_output_config(params: dict[str, Any], config: Any, conversion: Conversion) -> None:
    fields = conversion.optional_object(config, "output_config")
    conversion.leftovers(fields, {"effort", "format"}, "output_config")
    if fields.get("effort") is not None:
        params["reasoning"] = {"effort": fields["effort"]}
    if fields.get("format") is not None:
        shape = conversion.object(fields["format"], "output_config.format")
        name = {"name": "answer"} if shape.get("type") == "json_schema" else {}  # Responses requires a name
        params["text"] = {"format": {**name, **shape}}


def _tools(tools: Any, conversion: Conversion) -> list[dict[str, Any]]:
    functions = []
    for index, tool in enumerate(conversion.objects(tools, "tools")):
        path = f"tools[{index}]"
        if (function := client_function(tool)) is not None:
            name = conversion.text(tool.get("name"), f"{path}.name")
            functions.append({"type": "function", "name": name, **function})
            continue
        if tool.get("type") not in (None, "custom"):
            conversion.lose(path, f"only the client's own tools are carried, not {tool['type']!s:.60}")
            continue
        conversion.text(tool.get("name"), f"{path}.name")
        conversion.leftovers(tool, _TOOL, path)
        fields = {ours: tool[theirs] for theirs, ours in _TOOL_FIELDS if tool.get(theirs) is not None}
        functions.append({"type": "function", **fields})
    return functions


def _put_choice(params: dict[str, Any], choice: Any, conversion: Conversion) -> None:
    if choice is None:
        return
    fields = conversion.object(choice, "tool_choice")
    conversion.leftovers(fields, {"type", "name", "disable_parallel_tool_use"}, "tool_choice")
    kind = conversion.text(fields.get("type"), "tool_choice.type")
    if kind == "tool":
        params["tool_choice"] = {"type": "function", "name": conversion.text(fields.get("name"), "tool_choice.name")}
    elif kind in _CHOICES:
        params["tool_choice"] = _CHOICES[kind]
    else:
        raise conversion.refuse("tool_choice.type", "auto, any, tool or none", kind)
    if fields.get("disable_parallel_tool_use") is not None:
        params["parallel_tool_calls"] = not fields["disable_parallel_tool_use"]
