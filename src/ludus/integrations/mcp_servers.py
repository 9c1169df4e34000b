"""MCP servers that a session can connect to: over streamable HTTP, as a child process over stdio, or in this process.

All give the SDK's transport. This is also the only module that knows which errors of the SDK mean a lost connection.
"""

from __future__ import annotations

import inspect
import ssl
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import IO, Any, Protocol

from ludus.errors import Failure
from ludus.runtime.keys import redacted

_CONNECT_SECONDS = 30.0
_DELETE_SECONDS = 5.0
_MAX_EVENT_BYTES = 16 * 1024 * 1024
_MAX_REPLY_BYTES = 64 * 1024 * 1024  # of a reply that is not a stream of events
_SHOWN_CHARACTERS = 300
_JSONRPC_STATUSES = (400, 404)  # with these, a JSON-RPC error as the body is an answer to the request
#: How the SDK's messages about a lost connection begin.
_DISCONNECTED = ("Connection closed", "SSE stream")
#: How its messages begin that stand for a reply which is not MCP.
_NOT_MCP = ("Unexpected content type", "Failed to parse JSON response", "Redirect to ")


class McpServer(Protocol):
    """An MCP server that a session can connect to."""

    @property
    def name(self) -> str:
        """The server's name in messages, without any key."""
        ...

    @property
    def keys(self) -> tuple[str, ...]:
        """The secrets in the server's settings, to be redacted from messages."""
        ...

    def transport(self, stderr: StderrFile) -> AbstractAsyncContextManager[Any]:
        """A new connection, to be entered once."""
        ...


class StderrFile:
    """The standard error of a child process, whose last line tells why the process died."""

    def __init__(self) -> None:
        self.file: IO[str] | None = None

    def __enter__(self) -> StderrFile:
        self.file = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")
        return self

    def __exit__(self, *raised: object) -> None:
        if self.file is not None:
            self.file.close()

    def last_line(self) -> str:
        """The last line that is not blank."""
        if self.file is None:
            return ""
        self.file.seek(0, 2)
        self.file.seek(max(0, self.file.tell() - 4096))
        lines = self.file.read().strip().splitlines()
        return lines[-1].strip()[:_SHOWN_CHARACTERS] if lines else ""


@dataclass(frozen=True)
class HttpServer:
    """A server at a URL. Each session has its own HTTP client, so sessions share no cookies."""

    url: str
    name: str
    headers: dict[str, str] = field(default_factory=dict)
    keys: tuple[str, ...] = ()
    tls: ssl.SSLContext | bool = True  # shared by the sessions: loading the certificates costs more than a session

    @asynccontextmanager
    async def transport(self, stderr: StderrFile) -> AsyncIterator[Any]:
        """The SDK's transport on an HTTP client without a read timeout, since a rollout's deadlines apply."""
        import httpx2
        from mcp.client.streamable_http import streamable_http_client

        known = inspect.signature(streamable_http_client).parameters
        size: dict[str, Any] = {"max_sse_event_size": _MAX_EVENT_BYTES} if "max_sse_event_size" in known else {}
        timeout = httpx2.Timeout(None, connect=_CONNECT_SECONDS)
        hooks: Any = {"request": [_set_delete_timeout], "response": [_limit_reply, _fail_on_error_status]}
        headers = {"accept-encoding": "identity", **self.headers}  # a small reply could unpack into a huge one
        async with (
            httpx2.AsyncClient(headers=headers, timeout=timeout, verify=self.tls, event_hooks=hooks) as http,
            streamable_http_client(self.url, http_client=http, **size) as streams,
        ):
            yield streams


@dataclass(frozen=True)
class StdioServer:
    """A program that is started for one session and ends with it."""

    command: list[str]
    name: str
    env: dict[str, str] = field(default_factory=dict)
    keys: tuple[str, ...] = ()

    def transport(self, stderr: StderrFile) -> AbstractAsyncContextManager[Any]:
        """A child process in its own process group. It gets the SDK's default environment variables and `env`."""
        from mcp.client.stdio import StdioServerParameters, stdio_client

        program, *arguments = self.command
        parameters = StdioServerParameters(command=program, args=arguments, env=self.env)
        assert stderr.file is not None
        return stdio_client(parameters, errlog=stderr.file)  # type: ignore[arg-type]


@dataclass(frozen=True)
class InProcessServer:
    """A server object of the SDK in this process, without a port or a child process. Give each rollout its own."""

    server: Any
    name: str = "the MCP server in this process"
    keys: tuple[str, ...] = ()

    def transport(self, stderr: StderrFile) -> AbstractAsyncContextManager[Any]:
        """The server itself: the SDK's client connects to it in memory."""
        connected: AbstractAsyncContextManager[Any] = self.server
        return connected


def is_disconnect(error: Exception) -> bool:
    """Whether an error of the SDK means a lost connection, rather than an error that the server sent."""
    from mcp import MCPError
    from mcp_types import CONNECTION_CLOSED

    return isinstance(error, MCPError) and error.code == CONNECTION_CLOSED and error.message.startswith(_DISCONNECTED)


def is_bad_reply(error: Exception) -> bool:
    """Whether an error of the SDK stands for a reply that is not MCP: the server is broken, not the call."""
    from mcp import MCPError
    from pydantic import ValidationError

    return isinstance(error, ValidationError) or (isinstance(error, MCPError) and error.message.startswith(_NOT_MCP))


def refuses_handshake(error: Exception) -> bool:
    """Whether the server refused the handshake because it supports only the protocol without sessions."""
    from mcp import MCPError
    from mcp_types import UNSUPPORTED_PROTOCOL_VERSION

    errors = single_errors(error)
    return any(isinstance(single, MCPError) and single.code == UNSUPPORTED_PROTOCOL_VERSION for single in errors)


def single_errors(error: BaseException) -> Iterator[BaseException]:
    """The errors in an exception group and its nested groups."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from single_errors(inner)
    else:
        yield error


def failure_of(error: Exception, server: McpServer, stderr: StderrFile) -> Failure:
    """The failure that ended a session: the first error that is not just a consequence of the lost connection."""
    errors = [single for single in single_errors(error) if isinstance(single, Exception)]
    first = next((single for single in errors if not is_disconnect(single)), errors[0] if errors else error)
    kind, cause = _kind_and_cause(first)
    last_line = stderr.last_line()
    cause = f"{server.name}: {cause}" + (f" (stderr: {last_line})" if last_line else "")
    return Failure(kind, redacted(cause, *server.keys))


def _kind_and_cause(error: Exception) -> tuple[str, str]:
    import httpx2
    from mcp import MCPError
    from pydantic import ValidationError

    if isinstance(error, Failure):
        return error.kind, error.cause
    if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.UnsupportedProtocol):
        return "refused", f"cannot be reached: {error or type(error).__name__}"
    if isinstance(error, httpx2.TransportError):
        return "disconnected", f"the connection broke: {error or type(error).__name__}"
    if isinstance(error, OSError):
        return "refused", f"cannot be started: {error.strerror or error}"
    if is_disconnect(error):
        return "disconnected", f"the server is gone: {error}"
    if isinstance(error, MCPError):
        return "bad_response", f"answered with an error: {error.message[:_SHOWN_CHARACTERS]}"
    if isinstance(error, ValidationError):
        return "bad_response", f"sent a message that is not MCP: {error.errors()[0]['msg']}"
    # A reset connection makes libraries below the SDK raise anything, even an AttributeError.
    return "disconnected", f"the session ended: {type(error).__name__}: {error}"


async def _set_delete_timeout(request: Any) -> None:
    """Bound the DELETE that ends a session: a server that does not answer must not delay the rollout."""
    if request.method == "DELETE":
        request.extensions["timeout"] = dict.fromkeys(("connect", "read", "write", "pool"), _DELETE_SECONDS)


async def _limit_reply(response: Any) -> None:
    """Give up a reply that is compressed or too large. The SDK limits the events of a stream itself."""
    if response.headers.get("content-encoding", "identity") != "identity":
        raise Failure("bad_response", "answered with a compressed reply, which was not asked for")
    if not response.headers.get("content-type", "").startswith("text/event-stream"):
        response.stream = _limited(response.stream)


def _limited(stream: Any) -> Any:
    """The bytes of a reply, up to a limit."""
    import httpx2

    class LimitedStream(httpx2.AsyncByteStream):
        async def __aiter__(self) -> AsyncIterator[bytes]:
            size = 0
            async for part in stream:
                size += len(part)
                if size > _MAX_REPLY_BYTES:
                    raise Failure("bad_response", f"answered with more than {_MAX_REPLY_BYTES >> 20} MiB")
                yield part

        async def aclose(self) -> None:
            await stream.aclose()

    return LimitedStream()


async def _fail_on_error_status(response: Any) -> None:
    """Raise a `Failure` for an HTTP error without a JSON-RPC body; the SDK would lose its status."""
    status, request = response.status_code, response.request
    if status < 400 or request.method != "POST":
        return
    if status == 404 and "mcp-session-id" in request.headers:
        raise Failure("disconnected", "the server no longer knows the session: answered 404")
    body = await response.aread()
    if status not in _JSONRPC_STATUSES or not _is_jsonrpc_error(body):
        shown = " ".join(body[:_SHOWN_CHARACTERS].decode("utf-8", "replace").split())
        raise Failure(f"http_{status}", f"answered {status}: {shown}")


def _is_jsonrpc_error(body: bytes) -> bool:
    from mcp_types import JSONRPCError
    from pydantic import ValidationError

    try:
        JSONRPCError.model_validate_json(body)
    except ValidationError:
        return False
    return True
