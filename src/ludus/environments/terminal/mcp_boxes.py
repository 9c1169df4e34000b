"""The MCP servers of a task: they run in the agent's box, and the model calls their tools beside `bash`.

A box has no network, but its programs can reach one port of this machine (`Sandbox.route`). So the box connects to us:
bash, which every test script needs anyway, opens the connection and hands it to the server, or to another connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from ludus import Failure
from ludus.environments.terminal.settings import McpTable, filled
from ludus.integrations.mcp import McpResources, require_mcp
from ludus.integrations.mcp_servers import HttpServer, McpServer, StderrFile
from ludus.sandbox import Sandbox, SandboxError
from ludus.tools import error_text

#: Starts a program whose input and output are a connection to this machine.
_PROGRAM = """port=$1; shift
exec 3<>/dev/tcp/127.0.0.1/$port || exit 1
"$@" <&3 >&3 2> /tmp/mcp-server.txt 3>&- &"""

#: Joins a port of the box and a connection to this machine. The server in the box may still be starting.
_JOINED = """exec 3<>/dev/tcp/127.0.0.1/$1 || exit 1
{ for ((i = 0; i < 300; i++)); do { exec 4<>/dev/tcp/127.0.0.1/$2; } 2> /dev/null && break; sleep 0.1; done
cat <&3 >&4 & a=$!; cat <&4 >&3 & b=$!; wait -n $a $b; kill $a $b; } > /dev/null 2>&1 &"""

#: Seconds until the box must have connected to us, the longest message of a server, and how many lines may be none.
_CONNECTED, _LONGEST, _NOISE = 60.0, 16 << 20, 10_000

_LOCAL = ("localhost", "127.0.0.1", "0.0.0.0", "::1")

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class TaskServers(McpResources):
    """The servers of one task in one box."""

    def __init__(self, sandbox: Sandbox, workdir: str, tables: Sequence[McpTable], host_env: Sequence[str]) -> None:
        super().__init__()
        self._box = (sandbox, workdir)
        self._tables = tables
        self._host_env = host_env

    async def servers(self, task: Any) -> dict[str, McpServer]:
        """The servers by the beginning of their tools' names: a later one of the same name replaces an earlier one."""
        if self._tables:
            require_mcp()
        sandbox, workdir = self._box
        return {f"{table.name}__": _server(table, sandbox, workdir, self._host_env) for table in self._tables}

    async def open(self, task: Any) -> None:
        """Open a session with each server. One that does not answer in time is a failure."""
        try:
            async with asyncio.timeout(_CONNECTED):
                await super().open(task)
        except TimeoutError as error:
            names = ", ".join(table.name for table in self._tables)
            raise Failure(
                "timeout", f"the task's MCP server {names} did not answer within {_CONNECTED:.0f} s"
            ) from error

    async def call_within(self, seconds: float, name: str, arguments: str, *, acted: bool) -> str:
        """Call a tool. If the server fails, a model that acted in the box may be the reason: it sees the error, and
        is judged. Without that the failure is the task's."""
        failure: Failure
        try:
            async with asyncio.timeout(seconds):
                return await self.call(name, arguments)
        except TimeoutError:
            failure = Failure("timeout", f"tool `{name}` of the task's MCP server timed out after {seconds:.0f} s")
        except SandboxError:
            raise
        except Failure as error:
            failure = error
        if not acted:
            raise failure
        return error_text(failure.cause)

    def offers(self, name: str) -> bool:
        """Whether a server has this tool."""
        return name in self._listed


def _server(table: McpTable, sandbox: Sandbox, workdir: str, host_env: Sequence[str]) -> McpServer:
    name = f"the task's MCP server {table.name}"
    if table.command is not None:
        return ProgramServer(sandbox, [table.command, *table.args], workdir, name)
    url = urlsplit(table.url or "")
    if url.hostname not in _LOCAL:
        why = f"is at {url.hostname}, and servers run in the task's own box: start it there, at localhost"
        raise Failure("bad_row", f"task.toml: environment.mcp_servers: {table.name} {why}")
    headers = filled(table.headers, host_env)
    secrets = tuple(value for key, value in headers.items() if value != table.headers[key])
    port = url.port or (443 if url.scheme == "https" else 80)
    return PortServer(sandbox, urlunsplit(url), port, table.transport == "sse", name, headers, secrets)


@dataclass(frozen=True)
class ProgramServer:
    """A program of the box that speaks MCP on its standard input and output."""

    sandbox: Sandbox
    command: Sequence[str]
    workdir: str
    name: str
    keys: tuple[str, ...] = ()

    @asynccontextmanager
    async def transport(self, stderr: StderrFile) -> AsyncIterator[Any]:
        """Start the program, and exchange messages with it line by line."""
        try:
            async with (
                _from_box(self.sandbox, _PROGRAM, self.command, self.workdir) as connection,
                _messages(*connection) as streams,
            ):
                yield streams
        finally:
            await self._tell(stderr)

    async def _tell(self, stderr: StderrFile) -> None:
        """What the program wrote to its standard error: why it ended."""
        with suppress(OSError, Failure, RuntimeError):
            words = await self.sandbox.read("/tmp/mcp-server.txt", 1 << 20)
            assert stderr.file is not None
            stderr.file.write(words.decode(errors="replace"))


@dataclass(frozen=True)
class PortServer:
    """A server that listens in the box, started by the image's own ENTRYPOINT or by a step's set-up."""

    sandbox: Sandbox
    url: str
    port: int
    sse: bool
    name: str
    headers: Mapping[str, str] = field(default_factory=dict)
    keys: tuple[str, ...] = ()

    @asynccontextmanager
    async def transport(self, stderr: StderrFile) -> AsyncIterator[Any]:
        """The SDK's transport to a port of this machine that leads into the box."""
        async with _leading_to(self.sandbox, self.port) as port:
            parts = urlsplit(self.url)
            url = urlunsplit(parts._replace(netloc=f"127.0.0.1:{port}"))
            headers = {"host": parts.netloc, **self.headers}
            async with self._client(url, headers, stderr) as streams:
                yield streams

    def _client(self, url: str, headers: dict[str, str], stderr: StderrFile) -> AbstractAsyncContextManager[Any]:
        if self.sse:
            from mcp.client.sse import sse_client

            return sse_client(url, headers=headers)
        return HttpServer(url, self.name, headers, self.keys).transport(stderr)


@asynccontextmanager
async def _from_box(sandbox: Sandbox, script: str, arguments: Sequence[str], cwd: str) -> AsyncIterator[Streams]:
    """A connection that a script in the box opens to this machine. Every other one is closed at once.

    The port stays ours until the end: the box has a route to it, and the next server on it may be another rollout's.
    """
    arrived: asyncio.Future[Streams] = asyncio.get_running_loop().create_future()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if arrived.done():
            writer.close()
        else:
            arrived.set_result((reader, writer))

    server = await asyncio.start_server(accept, "127.0.0.1", 0, limit=_LONGEST)
    try:
        port = server.sockets[0].getsockname()[1]
        await sandbox.route(port)
        ended = await sandbox.exec(["bash", "-c", script, "bash", str(port), *arguments], timeout=60, cwd=cwd)
        if not ended.ok:
            raise Failure("refused", f"cannot be started: {ended.last_line or ended.why}")
        await asyncio.wait([arrived], timeout=_CONNECTED)
        if not arrived.done():
            raise Failure("timeout", f"no program of the box connected within {_CONNECTED:.0f} s")
        yield arrived.result()
    finally:
        server.close()
        if not arrived.cancel():  # a script that fails may have connected before
            arrived.result()[1].close()


@asynccontextmanager
async def _messages(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> AsyncIterator[Any]:
    """The SDK's streams of messages over a connection with one message a line."""
    import anyio
    from mcp.shared.message import SessionMessage
    from mcp.types import jsonrpc_message_adapter

    incoming, received = anyio.create_memory_object_stream[Any](0)
    sent, outgoing = anyio.create_memory_object_stream[Any](0)

    async def read() -> None:
        async with incoming:
            with suppress(OSError, ValueError, anyio.BrokenResourceError):
                noise = 0
                while noise < _NOISE and (line := await reader.readline()):
                    try:
                        message = SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
                    except ValueError:  # programs also print what is no message
                        noise += 1
                        await asyncio.sleep(0)  # a buffered line does not yield to other rollouts
                    else:
                        await incoming.send(message)

    async def write() -> None:
        async with outgoing:
            with suppress(OSError):
                async for message in outgoing:
                    text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                    writer.write(text.encode() + b"\n")
                    await writer.drain()

    async with anyio.create_task_group() as group:
        group.start_soon(read)
        group.start_soon(write)
        try:
            yield received, sent
        finally:
            received.close()
            sent.close()
            group.cancel_scope.cancel()


@asynccontextmanager
async def _leading_to(sandbox: Sandbox, port: int) -> AsyncIterator[int]:
    """A port of this machine that leads to a port of the box, as long as this is open."""
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not server.is_serving():  # accepted just before the end
            writer.close()
            return
        task = asyncio.create_task(_joined(sandbox, port, (reader, writer)))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        task.add_done_callback(lambda _: writer.close())  # here: a task cancelled before its first step runs no code

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _joined(sandbox: Sandbox, port: int, ours: Streams) -> None:
    """Copy bytes between one of our connections and one to a port of the box, until one of them ends."""
    with suppress(OSError, Failure):
        async with _from_box(sandbox, _JOINED, [str(port)], "/") as theirs:
            copies = [asyncio.create_task(_copy(*pair)) for pair in ((ours[0], theirs[1]), (theirs[0], ours[1]))]
            try:
                await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for copy in copies:
                    copy.cancel()
                await asyncio.gather(*copies, return_exceptions=True)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
