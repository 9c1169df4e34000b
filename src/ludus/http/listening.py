"""uvicorn, as one of several servers on the same loop, and with patience for slow clients bounded."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import Iterator
from time import monotonic
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ludus.errors import UserError

#: Within which the head of a request must have arrived, and the whole of it: a little more than a body may take.
HEAD_SECONDS = 15.0
REQUEST_SECONDS = 60.0
STOP_SECONDS = 10


class _Protocol(HttpToolsProtocol):
    """Knows since when it has been waiting for the rest of a request. A new connection waits for its first."""

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

    def on_message_complete(self) -> None:
        self._since = None
        super().on_message_complete()

    def is_late(self, now: float) -> bool:
        """Whether a client takes too long to say what it wants."""
        limit = HEAD_SECONDS if self._in_head else REQUEST_SECONDS
        return self._since is not None and now - self._since > limit


class Listening(uvicorn.Server):
    """One application on one socket, until `stop`. Signals are the business of whoever runs several of these."""

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
        self._looking: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield

    async def begin(self) -> None:
        """Serve from now on."""
        self._serving = asyncio.create_task(self.serve(sockets=[self._socket]))
        self._looking = asyncio.create_task(self._cut_off_the_slow())
        while not self.started:
            await asyncio.sleep(0.005)
            if self._serving.done():
                self._serving.result()
                raise RuntimeError("the server ended before it began")

    async def stop(self) -> None:
        """Finish what is being answered, then close."""
        self.should_exit = True
        if self._serving is not None:
            await asyncio.gather(self._serving, return_exceptions=True)
        if self._looking is not None:
            self._looking.cancel()

    async def _cut_off_the_slow(self) -> None:
        """Look at all connections now and then, which is cheaper than a timer for each request."""
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
    """A listening socket, or one line about why there is none."""
    listening: socket.socket | None = None
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listening = socket.socket(found[0], found[1], found[2])  # with its protocol, or asyncio leaves Nagle's delay on
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
