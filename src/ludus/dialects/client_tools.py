"""OpenAI's tools that the client runs and that are no functions, as functions that any policy can call.

A `custom` tool takes free text: it becomes a function with one text, `input`. A `namespace` holds tools: each becomes a
function with the namespace before its name. A call of such a function goes back to the client as the call of the tool
that it declared. The policy's own turn stays the function call that it wrote.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import orjson

from ludus.dialects.conversion import Item

Body = dict[str, Any]

_CALLS = ("custom_tool_call", "custom_tool_call_output")


class _Declared(NamedTuple):
    """A tool as the client declared it."""

    name: str
    namespace: str | None
    is_custom: bool


class ClientTools:
    """The tools of one request that are no functions, by the names of the functions that stand for them."""

    def __init__(self, tools: Any) -> None:
        self._declared: dict[str, _Declared] = {}
        self._tools = tools
        self._as_functions: list[Any] = []
        if isinstance(tools, list) and any(_kind(tool) in ("custom", "namespace") for tool in tools):
            self._as_functions = [function for tool in tools for function in self._functions(tool, None)]

    def request(self, body: Body) -> Body:
        """The request with functions instead of other tools. Its conversation is left to `function_items`."""
        if not self._declared:
            return body
        choice = body.get("tool_choice")
        chosen = {"tool_choice": _choice(choice)} if isinstance(choice, dict) else {}
        return {**body, "tools": self._as_functions, **chosen}

    def answer(self, response: Body) -> Body:
        """The response of the policy, with the client's tools and calls of them."""
        if not self._declared:
            return response
        return {**response, "tools": self._tools, "output": [self._as_declared(item) for item in response["output"]]}

    def _functions(self, tool: Any, namespace: str | None) -> list[Any]:
        kind = _kind(tool)
        if kind == "namespace" and namespace is None:
            tools, name = tool.get("tools"), str(tool.get("name"))
            inner = tools if isinstance(tools, list) else []
            return [function for entry in inner for function in self._functions(entry, name)]
        if namespace is None and kind != "custom":
            return [tool]
        if kind not in ("custom", "function") or not isinstance(tool.get("name"), str):
            return []  # no policy can call it, and no client could tell what was called
        name = _flat_name(tool["name"], namespace)
        self._declared.setdefault(name, _Declared(tool["name"], namespace, kind == "custom"))
        return [{**(_text_function(tool) if kind == "custom" else tool), "name": name}]

    def _as_declared(self, item: Item) -> Item:
        declared = self._declared.get(str(item.get("name"))) if item.get("type") == "function_call" else None
        if declared is None:
            return item
        call = {**item, "name": declared.name}
        if declared.namespace is not None:
            call["namespace"] = declared.namespace
        if declared.is_custom:
            call |= {"type": "custom_tool_call", "input": text_input(call.pop("arguments", ""))}
        return call


def function_items(items: list[Any]) -> list[Any]:
    """Items of a client with calls of functions instead of calls of other tools."""
    return [_as_function(item) if _is_other_call(item) else item for item in items]


def text_input(arguments: str) -> str:
    """The text that a call of a custom tool's function passes on. Arguments of any other form are the text itself."""
    try:
        parsed = orjson.loads(arguments)
    except orjson.JSONDecodeError:
        return arguments
    is_text = isinstance(parsed, dict) and len(parsed) == 1 and isinstance(parsed.get("input"), str)
    return str(parsed["input"]) if is_text else arguments


def _kind(tool: Any) -> Any:
    return tool.get("type", "function") if isinstance(tool, dict) else None


def _flat_name(name: str, namespace: str | None) -> str:
    return name if namespace is None else f"{namespace.removesuffix('__')}__{name}"


def _text_function(tool: dict[str, Any]) -> dict[str, Any]:
    """The function of a custom tool. Its description says which grammar the text follows."""
    description = tool.get("description") or ""
    grammar = tool.get("format")
    if isinstance(grammar, dict) and isinstance(grammar.get("definition"), str):
        syntax = f"{grammar.get('syntax') or ''} grammar".strip()
        description += f"\n\nThe input follows this {syntax}:\n{grammar['definition']}"
    schema = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
    return {"type": "function", "description": description, "parameters": {**schema, "additionalProperties": False}}


def _is_other_call(item: Any) -> bool:
    return isinstance(item, dict) and (item.get("type") in _CALLS or item.get("namespace") is not None)


def _as_function(item: Item) -> Item:
    """A call of a custom tool or of a tool in a namespace, or an output of a custom tool, as that of a function."""
    kind, call = item.get("type"), {key: value for key, value in item.items() if key != "namespace"}
    if kind == "custom_tool_call_output":
        return {**call, "type": "function_call_output"}
    if isinstance(item.get("name"), str) and item.get("namespace") is not None:
        call["name"] = _flat_name(item["name"], str(item["namespace"]))
    if kind == "custom_tool_call":
        call |= {"type": "function_call", "arguments": orjson.dumps({"input": call.pop("input", "")}).decode()}
    return call


def _choice(choice: dict[str, Any]) -> dict[str, Any]:
    """A choice among the tools, in the names of the functions."""
    if isinstance(tools := choice.get("tools"), list):
        return {**choice, "tools": [_choice(tool) if isinstance(tool, dict) else tool for tool in tools]}
    if choice.get("type") not in ("custom", "function") or not isinstance(choice.get("name"), str):
        return choice
    namespace = choice.get("namespace")
    named = {key: value for key, value in choice.items() if key != "namespace"}
    return {**named, "type": "function", "name": _flat_name(choice["name"], namespace and str(namespace))}
