"""A server that shares an event loop with others and disconnects clients that send too slowly."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from time import monotonic

from ludus.errors import UserError
from ludus.http.channels import Carrier
from ludus.http.exchange import Application, HttpExchange
from ludus.http.server_connection import ServerConnection

#: The time limits for receiving a request's head and the whole request. The latter exceeds the limit for a body.
HEAD_SECONDS = 15.0
REQUEST_SECONDS = 60.0
#: How long a connection without a request stays open.
KEPT_SECONDS = 75.0
#: How long requests in progress may take when the server stops.
STOP_SECONDS = 10


class Listening:
    """Serves one application on one socket from `begin` to `stop`. The caller handles signals.

    With `channels`, our own clients get many connections over one socket. Not for several processes that share a
    socket: one of them would get all requests of a client.
    """

    def __init__(self, app: Application, listening: socket.socket, *, channels: bool = False) -> None:
        self._app = app
        self._channels = channels
        self._socket = listening
        self._connections: set[ServerConnection | Carrier] = set()
        self._running: set[HttpExchange] = set()
        self._server: asyncio.Server | None = None
        self._watching: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Start to serve."""
        self._server = await asyncio.get_running_loop().create_server(
            lambda: ServerConnection(self._app, self._connections, self._running, self._channels),
            sock=self._socket,
            backlog=2048,
        )
        self._watching = asyncio.create_task(self._disconnect_slow_clients())

    async def stop(self) -> None:
        """Finish the requests in flight, then close."""
        if self._server is not None:
            self._server.close()
        self._socket.close()
        for connection in list(self._connections):
            connection.stop()
        requests = [exchange.task for exchange in self._running if exchange.task is not None]
        open_still = [connection.closed for connection in self._connections]
        if requests or open_still:
            await asyncio.wait([*requests, *open_still], timeout=STOP_SECONDS)
        late = [exchange.task for exchange in self._running if exchange.task and not exchange.task.done()]
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late, timeout=1.0)
        for connection in list(self._connections):  # their clients do not read the replies
            connection.transport.abort()
        if self._watching is not None:
            self._watching.cancel()

    async def _disconnect_slow_clients(self) -> None:
        """Check all connections periodically, which is cheaper than a timer for each request."""
        while True:
            await asyncio.sleep(min(1.0, HEAD_SECONDS / 2))
            limits, now = _limits(), monotonic()
            for connection in list(self._connections):
                expects, seconds = connection.waits_for(now)
                if seconds > limits.get(expects, seconds):
                    connection.transport.abort()  # `close` would wait until the client has read everything


def _limits() -> dict[str, float]:
    """How long the server waits, by what it waits for. Handlers have limits of their own for a reply."""
    return {"head": HEAD_SECONDS, "body": REQUEST_SECONDS, "next": KEPT_SECONDS, "reader": REQUEST_SECONDS}


def address(host: str, port: int | None) -> str:
    """The URL of a host and a port."""
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def bind(
    server_name: str, host: str, port: int, port_option: str = "--port; 0 takes a free one", host_option: str = "--host"
) -> socket.socket:
    """A listening socket. Raises a `UserError` that names the options to change if the address cannot be used."""
    listening: socket.socket | None = None
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, place = addresses[0]
        listening = socket.socket(family, kind, protocol)  # without the protocol, asyncio sets no TCP_NODELAY
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(place)
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
