"""How a session reaches its server: in this process, or in a child process that is watched and started again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any, Protocol

from ludus.errors import Failure
from ludus.http.client import Connections
from ludus.http.connection import HttpReply
from ludus.runtime.deadline import Clocks
from ludus.runtime.encoding import encode
from ludus.runtime.keys import remember_key
from ludus.runtime.restarts import Restarts
from ludus_nemo_gym.hosted.hosting import Hosting
from ludus_nemo_gym.hosted.process import ServerProcess, start_process
from ludus_nemo_gym.in_process import send_request

log = logging.getLogger("ludus.nemo_gym")

#: A request that takes this long is slow, and so is an answer to the question whether a server lives.
SLOW_SECONDS = 1.0


class ServerEnded(Failure):
    """The process of a server ended during a request, and its sessions with it."""


class ServerTransport(Protocol):
    """Sends requests to one server. `generation` changes when the server lost all of its sessions."""

    url: str
    generation: int

    async def request(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> HttpReply:
        """Send a request and return the reply, of any status."""
        ...


class Mask:
    """Replaces the secrets of a server's configuration in what the server says: its replies are recorded.

    Texts of this process lose them too, such as the cause of a failure.
    """

    def __init__(self, hosting: Hosting) -> None:
        secrets = hosting.secrets()
        for secret in secrets:
            remember_key(secret)
        self._secrets = [form for text in secrets for form in dict.fromkeys((text.encode(), encode(text)[1:-1]))]

    def applied(self, reply: HttpReply) -> HttpReply:
        """The reply, with its body changed if it holds a secret."""
        for secret in self._secrets:
            if secret in reply.body:
                reply.body = reply.body.replace(secret, b"***")
        return reply


class InProcess:
    """The server's application in this process."""

    generation = 0

    def __init__(self, app: Any, hosting: Hosting) -> None:
        self._app, self.url, self._mask = app, hosting.instance, Mask(hosting)

    async def request(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> HttpReply:
        """Call the application."""
        return self._mask.applied(await send_request(self._app, method, path, body, headers))

    @classmethod
    @asynccontextmanager
    async def started(cls, hosting: Hosting) -> AsyncIterator[InProcess]:
        """Build the application and run its start-up code."""
        app = hosting.build()
        async with app.running():
            yield cls(app, hosting)


class InChild:
    """The server in a child process. A process that died is replaced when the next request comes.

    Most servers work on one event loop, and many block it while they judge. Requests that wait meanwhile are queueing,
    and their clocks stand still. A server that blocks its event loop for longer than `block_seconds` is killed.
    """

    def __init__(self, hosting: Hosting, block_seconds: float) -> None:
        self.url = hosting.instance
        self.generation = 0
        self._hosting, self._block_seconds, self._mask = hosting, block_seconds, Mask(hosting)
        self._restarts, self._starting = Restarts(), asyncio.Lock()
        self._process: ServerProcess | None = None
        self._connections: Connections | None = None
        self._in_flight: dict[Clocks, float] = {}  # with the time at which each request was sent
        self._watching: asyncio.Task[None] | None = None
        self._blocked = self._answered = False
        self._why = ""

    @classmethod
    @asynccontextmanager
    async def started(cls, hosting: Hosting, block_seconds: float) -> AsyncIterator[InChild]:
        """Start the process. Raises a `UserError` if the server cannot be built."""
        transport = cls(hosting, block_seconds)
        try:
            await transport._start()
            yield transport
        finally:
            await transport._stop()

    async def request(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> HttpReply:
        """Send a request to the process. Raises a `Failure` if the process dies."""
        await self._ensure_running()
        process, connections = self._process, self._connections
        assert process is not None
        assert connections is not None
        clocks = Clocks()
        self._in_flight[clocks] = monotonic()
        if self._blocked:
            clocks.pause()
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch())
        try:
            reply = await connections.request(method, path, body, headers)
        except Failure as failure:
            if failure.kind in ("disconnected", "refused") and await process.ended_soon():
                kind, words = ("timeout", self._why) if self._why else ("crash", process.last_words())
                raise ServerEnded(kind, f"the server {self.url} {words}") from failure
            raise
        finally:
            del self._in_flight[clocks]
            clocks.resume()
        self._answered = True
        return self._mask.applied(reply)

    async def _ensure_running(self) -> None:
        process = self._process
        if process is not None and process.running:
            return
        async with self._starting:
            if self._process is not process:
                return  # another session has started it
            pause = self._restarts.pause(worked=self._answered)
            if pause is None:
                words = process.last_words() if process is not None else "cannot start"
                raise Failure("crash", f"the server {self.url} dies each time it is started: it {words}")
            await asyncio.sleep(pause)
            await self._close()
            await self._start()

    async def _start(self) -> None:
        self._process = process = await start_process(self._hosting)
        self._connections = Connections(
            "http://server",
            {"content-type": "application/json"},
            name=self.url,
            channels=True,
            unix=str(process.socket),
        )
        self.generation += 1
        self._answered, self._why = False, ""

    async def _stop(self) -> None:
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.gather(self._watching, return_exceptions=True)
        await self._close()

    async def _close(self) -> None:
        if self._connections is not None:
            await self._connections.close()
        if self._process is not None:
            await self._process.stop()

    async def _watch(self) -> None:
        """While a request takes long, ask the server for a sign of life."""
        while True:
            await asyncio.sleep(SLOW_SECONDS)
            oldest = min(self._in_flight.values(), default=None)
            process = self._process
            if oldest is not None and monotonic() - oldest >= SLOW_SECONDS and process is not None and process.running:
                await self._ask(process)

    async def _ask(self, process: ServerProcess) -> None:
        assert self._connections is not None
        alive = asyncio.ensure_future(self._connections.request("GET", "/livez"))
        try:
            await asyncio.wait({alive}, timeout=SLOW_SECONDS)
            if not alive.done():
                self._blocked = True
                for clocks in self._in_flight:
                    clocks.pause()
                await asyncio.wait({alive}, timeout=max(0.0, self._block_seconds - SLOW_SECONDS))
            if not alive.done():
                await self._kill_blocked(process)
        finally:
            alive.cancel()
            await asyncio.gather(alive, return_exceptions=True)
            self._blocked = False
            for clocks in self._in_flight:
                clocks.resume()

    async def _kill_blocked(self, process: ServerProcess) -> None:
        where = await process.where() or "its code"
        self._why = f"was killed: {where} blocked its event loop for {self._block_seconds:g} s"
        log.warning("the server %s %s. Make the handler a plain def, or await what it waits for", self.url, self._why)
        process.kill()


def transport_of(hosting: Hosting, *, isolate: bool, block_seconds: float) -> Any:
    """A context manager that starts the server and gives its transport. Another Python is always another process."""
    return InChild.started(hosting, block_seconds) if isolate or hosting.python else InProcess.started(hosting)
