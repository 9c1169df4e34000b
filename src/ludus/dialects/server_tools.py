"""Tools in a request that no policy can use: those that the provider's servers run, and those of unknown types.

The converters leave such tools out. A program that relies on one would go on without it, and nobody would know: a
server refuses them by name, or leaves them out because its operator says so.
"""

from __future__ import annotations

from typing import Any

from ludus.dialects.errors import Dialect
from ludus.dialects.messages_tools import client_function

Body = dict[str, Any]

#: The types of tools that are carried: functions and `client_tools`; of Anthropic's, also those of `client_function`.
_CARRIED: dict[Dialect, tuple[Any, ...]] = {
    "responses": ("function", "custom", "namespace", None),
    "chat": ("function", None),
    "messages": ("custom", None),
}
_FUNCTIONS = ("functionDeclarations", "function_declarations")
#: Fields of a request that switch a tool of the provider on.
_SWITCHES: dict[Dialect, str] = {"chat": "web_search_options", "messages": "mcp_servers"}


def split_tools(dialect: Dialect, body: Body) -> tuple[Body, list[str]]:
    """The request without the tools that cannot be carried, and the names of those."""
    tools, names = body.get("tools"), list[str]()
    if not isinstance(tools, list):
        tools = []
    split = _split_gemini if dialect == "gemini" else _split_types
    carried = split(dialect, tools, names)
    changed: Body = {"tools": carried} if names else {}
    switch = _SWITCHES.get(dialect, "")
    if body.get(switch) not in (None, []):  # an empty `web_search_options` switches the search on
        names.append(switch)
        changed[switch] = None
    if not names:
        return body, names
    body = {**body, **changed}
    if not carried or _is_chosen(dialect, body.get("tool_choice"), names):
        body = {key: value for key, value in body.items() if key not in ("tool_choice", "toolConfig", "tool_config")}
    if not carried:
        body.pop("tools", None)
    return body, names


def _split_types(dialect: Dialect, tools: list[Any], names: list[str]) -> list[Any]:
    carried = []
    for tool in tools:
        kind = tool.get("type") if isinstance(tool, dict) else None
        if kind in _CARRIED[dialect] or (dialect == "messages" and client_function(tool) is not None):
            carried.append(tool)
        else:
            names.append(str(kind)[:60])
    return carried


def _split_gemini(dialect: Dialect, tools: list[Any], names: list[str]) -> list[Any]:
    """Gemini's tools are the fields of an object; the functions of the client are one of them."""
    carried = []
    for tool in tools:
        if not isinstance(tool, dict):
            carried.append(tool)
            continue
        functions = {key: value for key, value in tool.items() if key in _FUNCTIONS}
        names += [str(key)[:60] for key, value in tool.items() if key not in functions and value is not None]
        if functions:
            carried.append(functions)
    return carried


def _is_chosen(dialect: Dialect, choice: Any, names: list[str]) -> bool:
    """Whether the request demands one of the tools that are not carried. Anthropic's types begin with their names."""
    if not isinstance(choice, dict):
        return False
    if dialect == "messages":
        return any(name.startswith(f"{choice.get('name')}_") for name in names)
    return choice.get("type") in names
