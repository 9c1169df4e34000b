"""Converters for `tools` and `tool_choice` between Responses requests and chat requests.

In Responses the fields of a function are flat, in chat they are nested under `function`. The converters to chat accept
both forms, because datasets contain both.
"""

from __future__ import annotations

from typing import Any

from ludus.dialects.conversion import Conversion

_FUNCTION = ("name", "description", "parameters", "strict")
_TOOL = frozenset({"type", *_FUNCTION})
_CHOICES = ("auto", "none", "required")


def tools_to_chat(tools: Any, conversion: Conversion) -> list[dict[str, Any]]:
    """Convert tools to the nested form. Chat has function tools only."""
    nested = []
    for index, tool in enumerate(conversion.objects(tools, "tools")):
        path = f"tools[{index}]"
        kind = tool.get("type", "function")
        if kind != "function":
            conversion.lose(path, f"chat has no tool of type {kind!s:.60}")
        elif isinstance(tool.get("function"), dict):
            nested.append(tool)
        else:
            conversion.text(tool.get("name"), f"{path}.name")
            conversion.leftovers(tool, _TOOL, path)
            nested.append({"type": "function", "function": _fields(tool)})
    return nested


def tools_from_chat(tools: Any, conversion: Conversion) -> list[dict[str, Any]]:
    """Convert function tools to the flat form."""
    flat = []
    for index, tool in enumerate(conversion.objects(tools, "tools")):
        path = f"tools[{index}]"
        if tool.get("type", "function") != "function":
            conversion.lose(path, f"only functions are carried, not {tool['type']!s:.60}")
            continue
        function = conversion.object(tool.get("function"), f"{path}.function")
        conversion.text(function.get("name"), f"{path}.function.name")
        conversion.leftovers(tool, {"type", "function"}, path)
        conversion.leftovers(function, _TOOL, f"{path}.function")
        flat.append({"type": "function", **_fields(function)})
    return flat


def without_strict(tool: Any) -> Any:
    """Tools of either form without `strict`."""
    if isinstance(tool, list):
        return [without_strict(each) for each in tool]
    if isinstance(tool, dict):
        return {
            key: without_strict(value) if key == "function" else value for key, value in tool.items() if key != "strict"
        }
    return tool


def _fields(function: dict[str, Any]) -> dict[str, Any]:
    return {key: function[key] for key in _FUNCTION if function.get(key) is not None}


def choice_to_chat(choice: Any, conversion: Conversion) -> Any:
    """Convert a tool choice to chat; None, listed as lost, if chat has no such choice."""
    if choice in _CHOICES:
        return choice
    fields = conversion.object(choice, "tool_choice")
    if fields.get("type") == "function":
        return _named_to_chat(fields, "tool_choice", conversion)
    if fields.get("type") == "allowed_tools" and "allowed_tools" not in fields:
        entries = conversion.objects(fields.get("tools"), "tool_choice.tools")
        functions = [entry for entry in entries if entry.get("type") == "function"]
        if len(functions) < len(entries):
            conversion.lose("tool_choice.tools", "chat has functions only")
        tools = [_named_to_chat(entry, "tool_choice.tools", conversion) for entry in functions]
        return {"type": "allowed_tools", "allowed_tools": {"mode": fields.get("mode", "auto"), "tools": tools}}
    if fields.get("type") == "allowed_tools":
        return fields
    conversion.lose("tool_choice", f"chat cannot choose {fields.get('type')!s:.60}")
    return None


def _named_to_chat(tool: dict[str, Any], path: str, conversion: Conversion) -> dict[str, Any]:
    if isinstance(tool.get("function"), dict):
        return tool
    return {"type": "function", "function": {"name": conversion.text(tool.get("name"), f"{path}.name")}}


def choice_from_chat(choice: Any, conversion: Conversion) -> Any:
    """Convert a tool choice from chat."""
    if choice in _CHOICES:
        return choice
    fields = conversion.object(choice, "tool_choice")
    if fields.get("type") == "function":
        return _named_from_chat(fields, "tool_choice", conversion)
    if fields.get("type") == "allowed_tools" and "allowed_tools" in fields:
        allowed = conversion.object(fields["allowed_tools"], "tool_choice.allowed_tools")
        entries = conversion.objects(allowed.get("tools"), "tool_choice.allowed_tools.tools")
        tools = [_named_from_chat(entry, "tool_choice.allowed_tools.tools", conversion) for entry in entries]
        return {"type": "allowed_tools", "mode": allowed.get("mode", "auto"), "tools": tools}
    return fields


def _named_from_chat(tool: dict[str, Any], path: str, conversion: Conversion) -> dict[str, Any]:
    function = tool.get("function", tool)
    name = conversion.object(function, f"{path}.function").get("name")
    return {"type": "function", "name": conversion.text(name, f"{path}.function.name")}
