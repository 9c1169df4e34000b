"""A real MCP server for tests, over stdio or HTTP. Some of its tools fail, hang or kill the server.

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
begun: list[str] = []
cancelled: list[str] = []


@server.tool()
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
async def note(text: str, context: Context[Any, Any]) -> str:
    """Add a note to this session and return all notes of the session."""
    session = (context.headers or {}).get("mcp-session-id", "the only one")
    session_notes = notes.setdefault(session, [])
    session_notes.append(text)
    return ",".join(session_notes)


@server.tool()
async def sleep_then_say(seconds: float, text: str) -> str:
    """Return the text after some seconds."""
    begun.append(text)
    try:
        await asyncio.sleep(seconds)
    except asyncio.CancelledError:
        cancelled.append(text)
        raise
    return text


@server.tool()
async def count_begun() -> int:
    """How many sleeps there were, those that still last among them."""
    return len(begun)


@server.tool()
async def count_cancelled() -> int:
    """The number of cancelled calls of `sleep_then_say`."""
    return len(cancelled)


@server.tool()
async def break_down(why: str) -> str:
    """Always raise an error."""
    raise ValueError(why)


@server.tool(name="files.read")
async def read_file() -> str:
    """A tool whose name the Responses API does not accept."""
    return "contents"


@server.tool()
async def parts(kind: str) -> CallToolResult:
    """Return a result with the given kind of content."""
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
    """Answer with a protocol error instead of a result."""
    raise MCPError(code, message)


@server.tool()
async def header(name: str, context: Context[Any, Any]) -> str:
    """The value of a header of this call's HTTP request."""
    headers = context.headers or {}
    return headers.get(name.lower(), "none")


@server.tool()
async def variable(name: str) -> str:
    """The value of an environment variable of the server."""
    return os.environ.get(name, "none")


@server.tool()
async def process_id() -> int:
    """The server's process id."""
    return os.getpid()


@server.tool()
async def die(words: str) -> str:
    """Write the words to stderr, then kill the server in the middle of the call."""
    print(words, file=sys.stderr, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
    return "never"


def without_sessions(app: Any) -> Any:
    """The app, refusing the handshake with the error that the protocol version 2026-07-28 prescribes."""
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

        async def replay() -> Any:
            return next(messages, None) or await receive()

        await app(scope, replay, send)

    return answer


def serve_http(json_response: bool, sessions: bool) -> None:
    app: Any = server.streamable_http_app(json_response=json_response)
    app = app if sessions else without_sessions(app)
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen()  # whoever reads the port may connect at once
    print(listening.getsockname()[1], flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="critical")).run(sockets=[listening])


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run("stdio")
    else:
        serve_http("--json" in sys.argv, "--no-sessions" not in sys.argv)
