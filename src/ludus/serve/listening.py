"""uvicorn, as one of several servers on the same loop, and with patience for slow clients bounded."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

#: Within which a client must have sent the head of a request once it is connected.
HEAD_SECONDS = 15.0
STOP_SECONDS = 10


class _Protocol(HttpToolsProtocol):
    """Closes a connection on which a request's head does not arrive in time."""

    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._waiting = self.loop.call_later(HEAD_SECONDS, transport.close)

    def on_headers_complete(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
        super().connection_lost(exc)


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

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone."""
        yield

    async def begin(self) -> None:
        """Serve from now on."""
        self._serving = asyncio.create_task(self.serve(sockets=[self._socket]))
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
