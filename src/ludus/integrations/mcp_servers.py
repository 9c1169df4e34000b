"""Where an MCP server is and how to reach it: over streamable HTTP, or as a child process over its pipes.

Both yield what the SDK calls a transport. Which words of the SDK mean that the server is gone is known here too, and
nowhere else.
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
_FAREWELL_SECONDS = 5.0
_LARGEST_EVENT = 16 * 1024 * 1024
_SHOWN = 300
_STATUS_OF_ANSWERS = (400, 404)  # with these an error in the protocol's own form is about the request, not the server
#: How the SDK says that no answer can come any more, in the place of one.
_GONE = ("Connection closed", "SSE stream")


class Server(Protocol):
    """A place where an MCP server is. `keys` are the secrets that it was given."""

    @property
    def name(self) -> str:
        """The server as a person knows it, without any key."""
        ...

    @property
    def keys(self) -> tuple[str, ...]:
        """What must not be shown."""
        ...

    def transport(self, notes: Notes) -> AbstractAsyncContextManager[Any]:
        """A connection of its own, to be entered once."""
        ...


class Notes:
    """What a child process wrote to its standard error: the last of it says why it died."""

    def __init__(self) -> None:
        self.file: IO[str] | None = None

    def __enter__(self) -> Notes:
        self.file = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")
        return self

    def __exit__(self, *raised: object) -> None:
        if self.file is not None:
            self.file.close()

    def last_line(self) -> str:
        """The last line that says anything."""
        if self.file is None:
            return ""
        self.file.seek(0, 2)
        self.file.seek(max(0, self.file.tell() - 4096))
        lines = self.file.read().strip().splitlines()
        return lines[-1].strip()[:_SHOWN] if lines else ""


@dataclass(frozen=True)
class HttpServer:
    """A server behind a URL. Each session has an HTTP client of its own, so that not even a cookie is shared."""

    url: str
    name: str
    headers: dict[str, str] = field(default_factory=dict)
    keys: tuple[str, ...] = ()
    tls: ssl.SSLContext | bool = True  # made once and passed on: loading the certificates costs more than a session

    @asynccontextmanager
    async def transport(self, notes: Notes) -> AsyncIterator[Any]:
        """An HTTP client and the SDK's transport on top of it. Our own deadlines say how long an answer may take."""
        import httpx2
        from mcp.client.streamable_http import streamable_http_client

        known = inspect.signature(streamable_http_client).parameters
        size: dict[str, Any] = {"max_sse_event_size": _LARGEST_EVENT} if "max_sse_event_size" in known else {}
        timeout = httpx2.Timeout(None, connect=_CONNECT_SECONDS)
        hooks: Any = {"request": [_hurry_farewell], "response": [_refuse_error_page]}
        async with (
            httpx2.AsyncClient(headers=self.headers, timeout=timeout, verify=self.tls, event_hooks=hooks) as http,
            streamable_http_client(self.url, http_client=http, **size) as streams,
        ):
            yield streams


@dataclass(frozen=True)
class StdioServer:
    """A program of the operator's choice, started for one session and ended with it."""

    command: list[str]
    name: str
    env: dict[str, str] = field(default_factory=dict)
    keys: tuple[str, ...] = ()

    def transport(self, notes: Notes) -> AbstractAsyncContextManager[Any]:
        """A child process in a process group of its own. Of our environment it sees the harmless part and `env`."""
        from mcp.client.stdio import StdioServerParameters, stdio_client

        program, *arguments = self.command
        parameters = StdioServerParameters(command=program, args=arguments, env=self.env)
        assert notes.file is not None
        return stdio_client(parameters, errlog=notes.file)  # type: ignore[arg-type]


def is_gone(error: Exception) -> bool:
    """Whether an error of the SDK says that the server is gone, and not that it answered with an error."""
    from mcp import MCPError
    from mcp_types import CONNECTION_CLOSED

    return isinstance(error, MCPError) and error.code == CONNECTION_CLOSED and error.message.startswith(_GONE)


def speaks_no_handshake(error: Exception) -> bool:
    """Whether a server refused the handshake because it knows only the protocol without sessions."""
    from mcp import MCPError
    from mcp_types import UNSUPPORTED_PROTOCOL_VERSION

    return any(
        isinstance(each, MCPError) and each.code == UNSUPPORTED_PROTOCOL_VERSION for each in single_errors(error)
    )


def single_errors(error: BaseException) -> Iterator[BaseException]:
    """The errors in a group, and in groups of groups."""
    if isinstance(error, BaseExceptionGroup):
        for each in error.exceptions:
            yield from single_errors(each)
    else:
        yield error


def failure_of(error: Exception, server: Server, notes: Notes) -> Failure:
    """What ended a session, as a failure with a kind: the first error that is more than an echo of another."""
    errors = [each for each in single_errors(error) if isinstance(each, Exception)]
    telling = next((each for each in errors if not is_gone(each)), errors[0] if errors else error)
    kind, cause = _kind(telling)
    said = notes.last_line()
    cause = f"{server.name}: {cause}" + (f" (it wrote: {said})" if said else "")
    return Failure(kind, redacted(cause, *server.keys))


def _kind(error: Exception) -> tuple[str, str]:
    import httpx2
    from mcp import MCPError
    from pydantic import ValidationError

    if isinstance(error, Failure):
        return error.kind, error.cause
    if isinstance(error, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.UnsupportedProtocol):
        return "refused", f"cannot be reached: {error or type(error).__name__}"
    if isinstance(error, httpx2.TransportError):
        return "disconnected", f"broke off: {error or type(error).__name__}"
    if isinstance(error, OSError):
        return "refused", f"cannot be started: {error.strerror or error}"
    if is_gone(error):
        return "disconnected", f"the server is gone: {error}"
    if isinstance(error, MCPError):
        return "bad_response", f"answered with an error: {error.message[:_SHOWN]}"
    if isinstance(error, ValidationError):
        return "bad_response", f"sent what the protocol does not allow: {error.errors()[0]['msg']}"
    return "crash", f"{type(error).__name__}: {error}"


async def _hurry_farewell(request: Any) -> None:
    """A server that does not answer the end of a session must not hold up ours."""
    if request.method == "DELETE":
        request.extensions["timeout"] = dict.fromkeys(("connect", "read", "write", "pool"), _FAREWELL_SECONDS)


async def _refuse_error_page(response: Any) -> None:
    """Fail on an HTTP error that is no answer in the protocol; the SDK would forget its status."""
    status, request = response.status_code, response.request
    if status < 400 or request.method != "POST":
        return
    if status == 404 and "mcp-session-id" in request.headers:
        raise Failure("disconnected", "the server has forgotten the session")
    body = await response.aread()
    if status not in _STATUS_OF_ANSWERS or not _is_answer(body):
        shown = " ".join(body[:_SHOWN].decode("utf-8", "replace").split())
        raise Failure(f"http_{status}", f"answered {status}: {shown}")


def _is_answer(body: bytes) -> bool:
    from mcp_types import JSONRPCError
    from pydantic import ValidationError

    try:
        JSONRPCError.model_validate_json(body)
    except ValidationError:
        return False
    return True
