"""A real MCP server for tests, over stdio or HTTP, with tools that behave and misbehave.

python mcp_server.py stdio
python mcp_server.py http [--json]      # prints its port
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
from typing import Any

import uvicorn
from mcp import MCPError
from mcp.server.mcpserver import Context, MCPServer
from mcp.types import CallToolResult, EmbeddedResource, ImageContent, TextContent, TextResourceContents
from starlette.responses import JSONResponse

PIXEL = "iVBORw0KGgo="
server: MCPServer[Any] = MCPServer("odds and ends", log_level="CRITICAL")
notes: dict[str, list[str]] = {}
cancelled: list[str] = []


@server.tool()
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
async def note(text: str, context: Context[Any, Any]) -> str:
    """Write something down for this session, and read all that it has written."""
    session = (context.headers or {}).get("mcp-session-id", "the only one")
    mine = notes.setdefault(session, [])
    mine.append(text)
    return ",".join(mine)


@server.tool()
async def sleep_then_say(seconds: float, text: str) -> str:
    """Answer later."""
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        cancelled.append(text)
        raise
    return text


@server.tool()
async def count_cancelled() -> int:
    """How many sleeps were broken off."""
    return len(cancelled)


@server.tool()
async def break_down(why: str) -> str:
    """Always fails."""
    raise ValueError(why)


@server.tool(name="files.read")
async def read_file() -> str:
    """Its name is one that the Responses API does not take."""
    return "contents"


@server.tool()
async def parts(kind: str) -> CallToolResult:
    """Results of every shape."""
    text, image = TextContent(text="first"), ImageContent(data=PIXEL, mime_type="image/png")
    embedded = EmbeddedResource(resource=TextResourceContents(uri="memo://1", text="embedded"))
    shapes: dict[str, CallToolResult] = {
        "several": CallToolResult(content=[text, image, TextContent(text="second")]),
        "structured": CallToolResult(content=[], structured_content={"weather": "sunny", "degrees": 21}),
        "both": CallToolResult(content=[text], structured_content={"ignored": True}),
        "pictured": CallToolResult(content=[image], structured_content={"seen": True}),
        "embedded": CallToolResult(content=[embedded]),
        "nothing": CallToolResult(content=[]),
        "error": CallToolResult(content=[TextContent(text="no such city")], is_error=True),
        "large": CallToolResult(content=[TextContent(text="x" * 2_000_000)]),
    }
    return shapes[kind]


@server.tool()
async def protocol_error(code: int, message: str) -> str:
    """Answers with an error of the protocol instead of a result."""
    raise MCPError(code, message)


@server.tool()
async def header(name: str, context: Context[Any, Any]) -> str:
    """What a header of this call's HTTP request says."""
    headers = context.headers or {}
    return headers.get(name.lower(), "none")


@server.tool()
async def variable(name: str) -> str:
    """What a variable of the server's environment says."""
    return os.environ.get(name, "none")


@server.tool()
async def process_id() -> int:
    """Whom to kill."""
    return os.getpid()


@server.tool()
async def die(words: str) -> str:
    """Ends the server in the middle of a call, with some last words."""
    print(words, file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


def without_sessions(app: Any) -> Any:
    """The server of a day when nobody shakes hands any more: it answers as the protocol of 2026 says it should."""
    data = {"supported": ["2026-07-28"], "requested": "2025-11-25"}
    error = {"code": -32022, "message": "Unsupported protocol version", "data": data}

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await app(scope, receive, send)
            return
        message = await receive()
        asked = json.loads(message["body"])
        if asked["method"] == "initialize":
            refusal = JSONResponse({"jsonrpc": "2.0", "id": asked["id"], "error": error}, 400)
            await refusal(scope, receive, send)
            return
        messages = iter([message])

        async def again() -> Any:
            return next(messages, None) or await receive()

        await app(scope, again, send)

    return answer


def serve_http(json_response: bool, sessions: bool) -> None:
    app: Any = server.streamable_http_app(json_response=json_response)
    app = app if sessions else without_sessions(app)
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    print(listening.getsockname()[1], flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="critical")).run(sockets=[listening])


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run("stdio")
    else:
        serve_http("--json" in sys.argv, "--no-sessions" not in sys.argv)
