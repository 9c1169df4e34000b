"""A uvicorn server that shares an event loop with others and disconnects clients that send too slowly."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Iterator
from time import monotonic
from typing import Any, cast

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from ludus.errors import UserError

#: The time limits for receiving a request's head and the whole request. The latter exceeds the limit for a body.
HEAD_SECONDS = 15.0
REQUEST_SECONDS = 60.0
STOP_SECONDS = 10


class _WholeReplies:
    """The transport of one reply. It keeps the head until the body comes, and writes both at once.

    uvicorn writes them one after the other, which can be two TCP segments, and the second may wait for the client's
    acknowledgement of the first. The head of a stream is written at once: its first event may come much later.
    """

    __slots__ = ("_begun", "_cycle", "_head", "_transport", "is_closing")

    def __init__(self, cycle: RequestResponseCycle, transport: asyncio.Transport) -> None:
        self._cycle = cycle
        self._begun = False
        self._head = b""
        self._transport = transport
        self.is_closing = transport.is_closing

    def write(self, data: bytes) -> None:
        """Write data, or keep it if it is the head of a reply whose length is known."""
        if self._head:
            self._transport.writelines((self._head, data))
            self._head = b""
        elif self._begun or self._cycle.chunked_encoding is not False:
            self._transport.write(data)
        else:
            self._begun, self._head = True, data

    def close(self) -> None:
        """Write what is left, and close the connection."""
        if self._head:
            self._transport.write(self._head)
        self._transport.close()


class _Protocol(HttpToolsProtocol):
    """Records when it began to wait for a request. A new connection waits for its first request."""

    _since: float | None = None
    _in_head = True

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._since = monotonic()

    def on_message_begin(self) -> None:
        self._since, self._in_head = monotonic(), True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()
        if self.scope["method"] != "HEAD":  # a reply to HEAD has no body
            self.cycle.transport = cast("asyncio.Transport", _WholeReplies(self.cycle, self.transport))

    def on_message_complete(self) -> None:
        self._since = None
        super().on_message_complete()

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


def bind(server_name: str, host: str, port: int) -> socket.socket:
    """A listening socket. Raises a `UserError` if the address cannot be used."""
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
        raise UserError(f"{server_name} cannot listen on {host}:{port}: {why}", "Choose another port") from error
    return listening
