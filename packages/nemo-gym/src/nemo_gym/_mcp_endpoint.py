"""The `/mcp` route: MCP's streamable HTTP without sessions of its own, each request answered with JSON.

It lists tools and calls them. That is all of MCP that a client of tools needs, so no SDK is imported.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import orjson

from nemo_gym._asgi import Message, Receive, Send, read_body

#: The versions of the protocol that this endpoint speaks, the newest first.
VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")

_PARSE_ERROR, _BAD_REQUEST, _NO_METHOD, _BAD_PARAMS = -32700, -32600, -32601, -32602

Json = dict[str, Any]


class ToolHost(Protocol):
    """Lists and calls tools on behalf of a request."""

    name: str

    def list_tools(self, scope: Message) -> list[Json]:
        """The tools, as MCP describes them."""

    async def call_tool(self, scope: Message, name: str, arguments: Json) -> Json:
        """The result of a call, as MCP describes it. A call that went wrong is a result, too."""


class ToolEndpoint:
    """An ASGI application that speaks MCP."""

    def __init__(self, host: ToolHost) -> None:
        self._host = host
        self._methods: dict[str, Callable[[Message, Json], Awaitable[Json]]] = {
            "initialize": self._initialize,
            "ping": self._ping,
            "tools/list": self._list,
            "tools/call": self._call,
        }

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one HTTP request, which holds one message or a list of messages."""
        if scope["method"] != "POST":
            await _reply(send, 405, _error(None, _BAD_REQUEST, "this MCP server answers POST only"))
            return
        try:
            content = orjson.loads(await read_body(receive))
        except orjson.JSONDecodeError:
            await _reply(send, 400, _error(None, _PARSE_ERROR, "the body is not JSON"))
            return
        messages = content if isinstance(content, list) else [content]
        answers = [answer for message in messages if (answer := await self._answer(scope, message)) is not None]
        if not answers:
            await _reply(send, 202, None)
        else:
            await _reply(send, 200, answers if isinstance(content, list) else answers[0])

    async def _answer(self, scope: Message, message: Any) -> Json | None:
        """The answer to a message; None for a notification, and for an answer of the client."""
        if not isinstance(message, dict):
            return _error(None, _BAD_REQUEST, "a message must be a JSON object")
        number, method = message.get("id"), message.get("method")
        if number is None or method is None:
            return None
        handler = self._methods.get(method) if isinstance(method, str) else None
        if handler is None:
            return _error(number, _NO_METHOD, f"unknown method {str(method)[:100]!r}")
        params = message.get("params")
        try:
            result = await handler(scope, params if isinstance(params, dict) else {})
        except ValueError as error:
            return _error(number, _BAD_PARAMS, str(error))
        return {"jsonrpc": "2.0", "id": number, "result": result}

    async def _initialize(self, scope: Message, params: Json) -> Json:
        wanted = params.get("protocolVersion")
        return {
            "protocolVersion": wanted if wanted in VERSIONS else VERSIONS[0],
            "capabilities": {"tools": {"listChanged": False}},
            "serverInfo": {"name": self._host.name, "version": "1"},
        }

    async def _ping(self, scope: Message, params: Json) -> Json:
        return {}

    async def _list(self, scope: Message, params: Json) -> Json:
        return {"tools": self._host.list_tools(scope)}

    async def _call(self, scope: Message, params: Json) -> Json:
        name, arguments = params.get("name"), params.get("arguments") or {}
        if not isinstance(name, str) or not isinstance(arguments, dict):
            raise ValueError("tools/call needs a name and an object of arguments")
        return await self._host.call_tool(scope, name, arguments)


def tool_result(text: str, *, failed: bool = False) -> Json:
    """The result of a call. A JSON object is given as text and as structured content."""
    result: Json = {"content": [{"type": "text", "text": text}], "isError": failed}
    if not failed:
        try:
            value = orjson.loads(text)
        except orjson.JSONDecodeError:
            value = None
        if isinstance(value, dict):
            result["structuredContent"] = value
    return result


def _error(number: Any, code: int, message: str) -> Json:
    return {"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": message}}


async def _reply(send: Send, status: int, content: Any) -> None:
    body = b"" if content is None else orjson.dumps(content)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == 405:
        headers.append((b"allow", b"POST"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
