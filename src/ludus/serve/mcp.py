"""An environment's tools over MCP: each call runs in the session that its token names.

`/seed_session` returns the token, and a client sends it as `X-NeMo-Gym-Session-Token` with every request. Listing the
tools needs no token. Over stdio there is one session, for one row, and no token.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Self

from ludus.errors import missing_extra
from ludus.http.mcp import call_result, listed
from ludus.http.messages import Receive, Refusal, Scope, Send
from ludus.runtime.boundary import step
from ludus.runtime.encoding import encode
from ludus.serve.sessions import Session, Sessions
from ludus.tools import ToolError

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server
    from mcp.types import CallToolResult

TOKEN_HEADER = "x-nemo-gym-session-token"

#: Finds the session of a request, given the headers it came with.
FindSession = Callable[[Any], Awaitable[Session]]


class McpEndpoint:
    """The `/mcp` route of a resources server. It runs while it is entered, in its own task, as the SDK demands."""

    def __init__(self, sessions: Sessions) -> None:
        try:
            from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
        except ImportError as error:
            raise missing_extra("MCP", "mcp") from error
        self._sessions = sessions
        self._manager = StreamableHTTPSessionManager(
            tool_server(sessions, self._find), json_response=True, stateless=True
        )
        self._ready = asyncio.Event()
        self._over = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        await self._manager.handle_request(scope, receive, send)

    async def __aenter__(self) -> Self:
        self._running = asyncio.create_task(self._run())
        await self._ready.wait()
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._over.set()
        if self._running is not None:
            await self._running

    async def _run(self) -> None:
        async with self._manager.run():
            self._ready.set()
            await self._over.wait()

    async def _find(self, request: Any) -> Session:
        token = request.headers.get(TOKEN_HEADER) if request is not None else None
        if not token:
            raise Refusal(401, "the session token is missing: POST /seed_session returns one")
        with self._sessions.use(token) as session:
            return session


def tool_server(sessions: Sessions, find: FindSession) -> Server[Any]:
    """An MCP server whose tools are those of an environment."""
    from mcp import types
    from mcp.server.lowlevel import Server

    async def list_tools(context: Any, params: Any) -> types.ListToolsResult:
        try:
            offered = _offered(await find(context.request))
        except Refusal:
            offered = sessions.fresh().tools()
        return types.ListToolsResult.model_validate({"tools": listed(offered)})

    async def call_tool(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        try:
            session = await find(context.request)
        except Refusal as error:
            return _result(str(error), failed=True)
        names = [tool["name"] for tool in _offered(session)]
        if params.name not in names:
            return _result(f"there is no tool {params.name} in this session, only: {', '.join(names)}", failed=True)
        with sessions.use(session.id):
            arguments = encode(params.arguments or {}).decode()
            limit = sessions.environment.limits_for(session.task).tool
            work = session.resources.call(params.name, arguments)
            output = await step("tool", limit, work, f"tool `{params.name}`")
        return _result(output, failed=isinstance(output, ToolError))

    return Server(sessions.environment.name, on_list_tools=list_tools, on_call_tool=call_tool)


def _offered(session: Session) -> list[dict[str, Any]]:
    """The tools of a session: those that its row lists, or all if the row lists none."""
    tools = session.resources.tools()
    wanted = {tool.get("name") for tool in (session.task.tools if session.task is not None else None) or ()}
    return [tool for tool in tools if tool["name"] in wanted] if wanted else tools


def _result(text: str, *, failed: bool) -> CallToolResult:
    from mcp import types

    return types.CallToolResult.model_validate(call_result(text, failed=failed))
