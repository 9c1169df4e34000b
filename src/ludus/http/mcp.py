"""Tools over MCP: one JSON-RPC message a request, answered with JSON, without sessions of the protocol."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import orjson

import ludus
from ludus.http.messages import Incoming, Refusal, Reply
from ludus.runtime.encoding import encode

#: The versions of the protocol that this part of it is the same in, newest first.
VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")

Message = dict[str, Any]

#: Runs a tool, given its name and its arguments as JSON, and returns its output.
CallTool = Callable[[str, str], Awaitable[str]]


def listed(tools: Iterable[Message]) -> list[Message]:
    """Tools of the Responses API as MCP lists them."""
    return [
        {
            "name": tool["name"],
            "description": tool.get("description") or "",
            "inputSchema": tool.get("parameters") or {"type": "object"},
        }
        for tool in tools
        if "name" in tool
    ]


def call_result(text: str, *, failed: bool = False) -> Message:
    """The result of a call. An output that is a JSON object is there as such, too."""
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        value = None
    structured = {"structuredContent": value} if isinstance(value, dict) and not failed else {}
    return {"content": [{"type": "text", "text": text}], "isError": failed, **structured}


async def mcp_reply(incoming: Incoming, tools: Iterable[Message], call: CallTool) -> Reply:
    """The reply to a request at `/mcp`. A notification gets an empty one."""
    message = incoming.json()
    if not isinstance(message, dict) or not isinstance(message.get("method"), str):
        raise Refusal(400, "an MCP message is a JSON-RPC object with a method")
    if "id" not in message:
        return Reply(status=202)
    params = message.get("params")
    answer = await _answer(message["method"], params if isinstance(params, dict) else {}, tools, call)
    return Reply.of({"jsonrpc": "2.0", "id": message["id"], **answer})


async def _answer(method: str, params: Message, tools: Iterable[Message], call: CallTool) -> Message:
    if method == "initialize":
        asked = params.get("protocolVersion")
        about = {"name": "ludus", "version": ludus.__version__}
        version = asked if asked in VERSIONS else VERSIONS[0]
        return {"result": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about}}
    if method == "ping":
        return {"result": {}}
    if method == "tools/list":
        return {"result": {"tools": listed(tools)}}
    if method == "tools/call":
        name, arguments = params.get("name"), params.get("arguments")
        if not isinstance(name, str) or not isinstance(arguments, dict | None):
            return _error(-32602, "tools/call needs a name, and arguments that are an object")
        return {"result": call_result(await call(name, encode(arguments or {}).decode()))}
    return _error(-32601, f"this server has no method {method:.80}")


def _error(code: int, text: str) -> Message:
    return {"error": {"code": code, "message": text}}
