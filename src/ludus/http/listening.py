"""A uvicorn server that shares an event loop with others and disconnects clients that send too slowly."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import Iterator
from time import monotonic
from typing import Any, cast

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ludus.errors import UserError

#: The time limits for receiving a request's head and the whole request. The latter exceeds the limit for a body.
HEAD_SECONDS = 15.0
REQUEST_SECONDS = 60.0
STOP_SECONDS = 10

#: How uvicorn begins an interim reply, and how it ends the head of a reply without a known length.
_CONTINUE = b"HTTP/1.1 100 "
_CHUNKED = b"transfer-encoding: chunked\r\n\r\n"


class _WholeReplies:
    """A connection's transport. It keeps the head of a reply until the body comes, and writes both at once.

    uvicorn writes them one after the other, which is two TCP segments, and the second may wait until the client has
    acknowledged the first. The head of a stream is written at once: its first event may come much later.
    """

    __slots__ = (
        "_head",
        "_head_is_next",
        "_transport",
        "get_extra_info",
        "is_closing",
        "pause_reading",
        "resume_reading",
    )

    def __init__(self, transport: asyncio.Transport) -> None:
        self._head = b""
        self._head_is_next = True
        self._transport = transport
        self.get_extra_info, self.is_closing = transport.get_extra_info, transport.is_closing
        self.pause_reading, self.resume_reading = transport.pause_reading, transport.resume_reading

    def write(self, data: bytes) -> None:
        """Write data, or keep it if it is the head of a reply whose length is known."""
        if self._head:
            self._transport.writelines((self._head, data))
            self._head = b""
        elif self._head_is_next and not data.startswith(_CONTINUE):
            self._head_is_next = False
            if data.endswith(_CHUNKED):
                self._transport.write(data)
            else:
                self._head = data
        else:
            self._transport.write(data)

    def end_reply(self) -> None:
        """Say that a reply is complete, even if it had no body: the next data is the head of another reply."""
        self._flush()
        self._head_is_next = True

    def close(self) -> None:
        """Write what is left, and close the connection."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._head:
            self._transport.write(self._head)
            self._head = b""


class _Protocol(HttpToolsProtocol):
    """Records when it began to wait for a request. A new connection waits for its first request."""

    _since: float | None = None
    _in_head = True

    def connection_made(self, transport: Any) -> None:
        self._replies = _WholeReplies(transport)
        super().connection_made(cast("asyncio.Transport", self._replies))
        self._since = monotonic()

    def on_message_begin(self) -> None:
        self._since, self._in_head = monotonic(), True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._since = None
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self._replies.end_reply()
        super().on_response_complete()

    def is_late(self, now: float) -> bool:
        """Whether the client takes too long to send its request."""
        limit = HEAD_SECONDS if self._in_head else REQUEST_SECONDS
        return self._since is not None and now - self._since > limit


class Listening(uvicorn.Server):
    """Serves one application on one socket from `begin` to `stop`. The caller handles signals."""

    def __init__(self, app: Any, listening: socket.socket) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http=_Protocol,
                ws="none",
                lifespan="off",
                proxy_headers=False,
                loop="none",
                access_log=False,
                log_config=None,
                server_header=False,
                date_header=False,
                timeout_keep_alive=75,
                timeout_graceful_shutdown=STOP_SECONDS,
            )
        )
        self._socket = listening
        self._serving: asyncio.Task[None] | None = None
        self._watching: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Install no signal handlers."""
        yield

    async def begin(self) -> None:
        """Start to serve."""
        self._serving = asyncio.create_task(self.serve(sockets=[self._socket]))
        self._watching = asyncio.create_task(self._disconnect_slow_clients())
        while not self.started:
            await asyncio.sleep(0.005)
            if self._serving.done():
                self._serving.result()
                raise RuntimeError("the server stopped before it had started")

    async def stop(self) -> None:
        """Finish the requests in flight, then close."""
        self.should_exit = True
        if self._serving is not None:
            await asyncio.gather(self._serving, return_exceptions=True)
        if self._watching is not None:
            self._watching.cancel()

    async def _disconnect_slow_clients(self) -> None:
        """Check all connections periodically, which is cheaper than a timer for each request."""
        while True:
            await asyncio.sleep(min(1.0, HEAD_SECONDS / 2))
            now = monotonic()
            for each in list(self.server_state.connections):
                if isinstance(each, _Protocol) and each.is_late(now):
                    each.transport.close()


def address(host: str, port: int | None) -> str:
    """The URL of a host and a port."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def bind(
    server_name: str,
    host: str,
    port: int,
    port_option: str = "--port; 0 takes a free one",
    host_option: str = "--host",
) -> socket.socket:
    """A listening socket. Raises a `UserError` that names the options to change if the address cannot be used."""
    listening: socket.socket | None = None
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listening = socket.socket(found[0], found[1], found[2])  # without the protocol, asyncio sets no TCP_NODELAY
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(found[4])
        listening.listen(2048)
        listening.setblocking(False)
    except OSError as error:
        if listening is not None:
            listening.close()
        why = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
        about_port = error.errno in (errno.EADDRINUSE, errno.EACCES)
        hint = f"Choose another port with {port_option}" if about_port else f"Correct {host_option}"
        raise UserError(f"{server_name} cannot listen on {host}:{port}: {why}", hint) from error
    return listening
