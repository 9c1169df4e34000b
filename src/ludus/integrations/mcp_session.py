"""One MCP session, which runs in its own asyncio task.

The SDK's cancel scopes must be entered and left in the same task, but a rollout may open, call and close in different
tasks. So one task runs the session. Other tasks put calls into its queue, and each waits for a future. A cancelled
caller stops waiting at once, whatever the server does, and a late answer is dropped.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ludus
from ludus.errors import Failure
from ludus.integrations.mcp_servers import (
    McpServer,
    StderrFile,
    failure_of,
    is_bad_reply,
    is_disconnect,
    refuses_handshake,
)

if TYPE_CHECKING:
    import anyio
    from mcp import Client
    from mcp.types import CallToolResult, Tool

_MAX_PAGES = 100
_MAX_TOOLS = 10_000
_STOP_SECONDS = 12.0  # longer than the SDK needs to kill a child process that ignores SIGTERM


@dataclass(frozen=True)
class _Call:
    tool: str
    arguments: dict[str, Any]
    answer: asyncio.Future[Any]


class McpSession:
    """A session with one MCP server: `start` it, `call` its tools, `stop` it.

    session = McpSession(server)
    tools = await session.start()
    result = await session.call("get_weather", {"city": "Oslo"})
    await session.stop()
    """

    def __init__(self, server: McpServer) -> None:
        self._server = server
        self._calls: asyncio.Queue[_Call | None] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        self._failure = Failure("disconnected", f"{server.name}: the session is closed")
        self._scope: anyio.CancelScope
        self._opened: asyncio.Future[Any]

    async def start(self) -> list[Tool]:
        """Connect, do the handshake, and list the server's tools."""
        import anyio

        self._scope = anyio.CancelScope()
        self._opened = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run(), name=f"mcp session with {self._server.name}")
        tools: list[Tool] = await self._answer(self._opened)
        return tools

    async def call(self, tool: str, arguments: dict[str, Any]) -> CallToolResult:
        """Call a tool. Raises the error that the server sent, or a `Failure` if the session ends first."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._calls.put_nowait(_Call(tool, arguments, answer))
        result: CallToolResult = await self._answer(answer)
        return result

    async def stop(self) -> None:
        """End the session and its child process. If the caller is cancelled, the session still ends on its own."""
        if self._task is None:
            return
        try:
            if self._opened.done() and not self._opened.cancelled():
                self._calls.put_nowait(None)  # an open session must tell the server that it ends
                await asyncio.wait({self._task}, timeout=_STOP_SECONDS)
        finally:
            self._scope.cancel()  # not task.cancel(): the SDK shields cleanup, such as ending a child process
        await asyncio.wait({self._task})

    async def _answer(self, answer: asyncio.Future[Any]) -> Any:
        """Wait for the answer or the end of the session."""
        assert self._task is not None
        try:
            await asyncio.wait({answer, self._task}, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                raise Failure(self._failure.kind, self._failure.cause)
            outcome = answer.result()
        finally:
            answer.cancel()  # if the caller was cancelled, this cancels the call on the server too
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def _run(self) -> None:
        """Run the session from start to end. Errors are stored as the failure that waiting callers raise."""
        with StderrFile() as stderr:
            try:
                with self._scope:
                    async with AsyncExitStack() as stack:
                        await self._serve(await self._connect(stack, stderr))
            except Exception as error:
                self._failure = failure_of(error, self._server, stderr)

    async def _connect(self, stack: AsyncExitStack, stderr: StderrFile) -> Client:
        """Connect with the handshake, which makes a session, or without if the server supports no sessions."""
        from mcp import Client
        from mcp.types import Implementation

        def client(mode: str) -> Client:
            ours = Implementation(name="ludus", version=ludus.__version__)
            return Client(self._server.transport(stderr), mode=mode, cache=None, client_info=ours)

        try:
            return await stack.enter_async_context(client("legacy"))
        except Exception as error:
            if not refuses_handshake(error):
                raise
        return await stack.enter_async_context(client("auto"))

    async def _serve(self, client: Client) -> None:
        """List the tools, then run the queued calls concurrently until `stop` queues None."""
        import anyio

        tools = await _tools(client)
        if not self._opened.done():
            self._opened.set_result(tools)
        async with anyio.create_task_group() as group:
            while (call := await self._calls.get()) is not None:
                group.start_soon(_run_call, client, call)
            group.cancel_scope.cancel()


async def _run_call(client: Client, call: _Call) -> None:
    import anyio

    with anyio.CancelScope() as scope:
        call.answer.add_done_callback(lambda _: scope.cancel())
        outcome: Any
        try:
            outcome = await client.call_tool(call.tool, call.arguments)
        except Exception as error:
            if is_disconnect(error) or is_bad_reply(error):
                raise  # ends the session and all waiting calls
            outcome = error
        if not call.answer.done():
            call.answer.set_result(outcome)


async def _tools(client: Client) -> list[Tool]:
    """The tools on all pages of the server's list."""
    tools: list[Tool] = []
    cursor = None
    for _ in range(_MAX_PAGES):
        page = await client.list_tools(cursor=cursor)
        tools += page.tools
        if len(tools) > _MAX_TOOLS:
            raise Failure("bad_response", f"the server lists more than {_MAX_TOOLS:,} tools")
        cursor = page.next_cursor
        if cursor is None:
            return tools
    raise Failure("bad_response", f"the server's list of tools has more than {_MAX_PAGES} pages")
