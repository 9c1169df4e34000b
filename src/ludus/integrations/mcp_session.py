"""One MCP session in a task of its own.

The SDK's scopes must be entered and left in the same task, while a rollout opens, calls and closes in whatever task its
deadlines put it. So the session lives in one task; others put calls into its queue and wait for their own answer. Who
stops waiting is gone at once, whatever the server does, and an answer that comes later reaches nobody.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ludus
from ludus.errors import Failure
from ludus.integrations.mcp_servers import Notes, Server, failure_of, is_gone, speaks_no_handshake

if TYPE_CHECKING:
    import anyio
    from mcp import Client
    from mcp.types import CallToolResult, Tool

_MOST_PAGES = 100
_PATIENCE = 12.0  # longer than the SDK needs to end a child process that does not want to


@dataclass(frozen=True)
class _Call:
    tool: str
    arguments: dict[str, Any]
    answer: asyncio.Future[Any]


class Session:
    """A connection to one server: `start` it, `call` its tools, `stop` it.

    session = Session(server)
    tools = await session.start()
    result = await session.call("get_weather", {"city": "Oslo"})
    await session.stop()
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._calls: asyncio.Queue[_Call | None] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        self._failure = Failure("disconnected", f"{server.name}: the session is closed")
        self._scope: anyio.CancelScope
        self._opened: asyncio.Future[Any]

    async def start(self) -> list[Tool]:
        """Connect, shake hands, and list the tools of the server."""
        import anyio

        self._scope = anyio.CancelScope()
        self._opened = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._live(), name=f"mcp session with {self._server.name}")
        tools: list[Tool] = await self._answer(self._opened)
        return tools

    async def call(self, tool: str, arguments: dict[str, Any]) -> CallToolResult:
        """Call a tool. Raises what the server answered in the place of a result, or a `Failure` when it is gone."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._calls.put_nowait(_Call(tool, arguments, answer))
        result: CallToolResult = await self._answer(answer)
        return result

    async def stop(self) -> None:
        """End the session and whatever belongs to it. Who is cancelled while waiting leaves the ending to itself."""
        if self._task is None:
            return
        try:
            if self._opened.done() and not self._opened.cancelled():
                self._calls.put_nowait(None)  # a session that was opened takes leave of its server
                await asyncio.wait({self._task}, timeout=_PATIENCE)
        finally:
            self._scope.cancel()  # and not the task: the SDK may finish what it shields, such as ending a child process
        await asyncio.wait({self._task})

    async def _answer(self, answer: asyncio.Future[Any]) -> Any:
        """Wait for an answer, or for the end of the session."""
        assert self._task is not None
        try:
            await asyncio.wait({answer, self._task}, return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                raise Failure(self._failure.kind, self._failure.cause)
            outcome = answer.result()
        finally:
            answer.cancel()  # tells the session that nobody waits any more
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def _live(self) -> None:
        """The whole life of the session. It ends without an exception: what went wrong is told to who waits."""
        with Notes() as notes:
            try:
                with self._scope:
                    async with AsyncExitStack() as stack:
                        await self._serve(await self._connect(stack, notes))
            except Exception as error:
                self._failure = failure_of(error, self._server, notes)

    async def _connect(self, stack: AsyncExitStack, notes: Notes) -> Client:
        """Shake hands: only then is there a session. A server that knows none is spoken to without."""
        from mcp import Client
        from mcp.types import Implementation

        def client(mode: str) -> Client:
            ours = Implementation(name="ludus", version=ludus.__version__)
            return Client(self._server.transport(notes), mode=mode, cache=None, client_info=ours)

        try:
            return await stack.enter_async_context(client("legacy"))
        except Exception as error:
            if not speaks_no_handshake(error):
                raise
        return await stack.enter_async_context(client("auto"))

    async def _serve(self, client: Client) -> None:
        """List the tools, then carry out calls, at once where they come at once, until it is time to end."""
        import anyio

        tools = await _tools(client)
        if not self._opened.done():
            self._opened.set_result(tools)
        async with anyio.create_task_group() as group:
            while (call := await self._calls.get()) is not None:
                group.start_soon(_carry_out, client, call)
            group.cancel_scope.cancel()


async def _carry_out(client: Client, call: _Call) -> None:
    import anyio

    with anyio.CancelScope() as scope:
        call.answer.add_done_callback(lambda _: scope.cancel())
        outcome: Any
        try:
            outcome = await client.call_tool(call.tool, call.arguments)
        except Exception as error:
            if is_gone(error):
                raise  # ends the session, and with it every call that is still waiting
            outcome = error
        if not call.answer.done():
            call.answer.set_result(outcome)


async def _tools(client: Client) -> list[Tool]:
    """All pages of the server's list."""
    found: list[Tool] = []
    cursor = None
    for _ in range(_MOST_PAGES):
        page = await client.list_tools(cursor=cursor)
        found += page.tools
        cursor = page.next_cursor
        if cursor is None:
            return found
    raise Failure("bad_response", f"its list of tools has no end after {_MOST_PAGES} pages")
