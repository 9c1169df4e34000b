"""How a session reaches its server: in this process, or in a child process that is watched and started again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Protocol

from ludus.errors import Failure
from ludus.http.client import Connections
from ludus.http.connection import HttpReply
from ludus.http.in_process import send_request
from ludus.runtime.restarts import Restarts
from ludus_nemo_gym.hosted.hosting import Hosting
from ludus_nemo_gym.hosted.process import ServerProcess, start_process

log = logging.getLogger("ludus.nemo_gym")

#: A server that answers nothing for this long after a request was given up has a blocked event loop.
BLOCKED_SECONDS = 5.0


class ServerTransport(Protocol):
    """Sends requests to one server. `generation` changes when the server lost all of its sessions."""

    url: str
    generation: int

    async def request(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> HttpReply:
        """Send a request and return the reply, of any status."""
        ...


class InProcess:
    """The server's application in this process."""

    generation = 0

    def __init__(self, app: Any, name: str) -> None:
        self._app, self.url = app, name

    async def request(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> HttpReply:
        """Call the application."""
        return await send_request(self._app, method, path, body, headers)

    @classmethod
    @asynccontextmanager
    async def started(cls, hosting: Hosting) -> AsyncIterator[InProcess]:
        """Build the application and run its start-up code."""
        app = hosting.build()
        async with app.running():
            yield cls(app, hosting.instance)


class InChild:
    """The server in a child process. A process that died is replaced when the next session begins."""

    def __init__(self, hosting: Hosting) -> None:
        self.url = hosting.instance
        self.generation = 0
        self._hosting = hosting
        self._restarts, self._starting = Restarts(), asyncio.Lock()
        self._process: ServerProcess | None = None
        self._connections: Connections | None = None
        self._checks: set[asyncio.Task[None]] = set()
        self._answered = False
        self._why = ""

    @classmethod
    @asynccontextmanager
    async def started(cls, hosting: Hosting) -> AsyncIterator[InChild]:
        """Start the process. Raises a `UserError` if the server cannot be built."""
        transport = cls(hosting)
        try:
            await transport._start()
            yield transport
        finally:
            await transport._stop()

    async def request(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> HttpReply:
        """Send a request to the process. Raises a `Failure` of kind `crash` if the process dies."""
        await self._ensure_running()
        process, connections = self._process, self._connections
        assert process is not None
        assert connections is not None
        try:
            reply = await connections.request(method, path, body, headers)
        except asyncio.CancelledError:
            self._check_soon(process)
            raise
        except Failure as failure:
            if failure.kind in ("disconnected", "refused") and await process.ended_soon():
                raise Failure("crash", f"the server {self.url} {self._why or process.last_words()}") from failure
            raise
        self._answered = True
        return reply

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
            await self._stop()
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
        for check in self._checks:
            check.cancel()
        if self._connections is not None:
            await self._connections.close()
        if self._process is not None:
            await self._process.stop()

    def _check_soon(self, process: ServerProcess) -> None:
        """A request was given up: find out whether the event loop of the server is blocked."""
        if process is self._process and not self._checks:
            check = asyncio.create_task(self._check(process))
            self._checks.add(check)
            check.add_done_callback(self._checks.discard)

    async def _check(self, process: ServerProcess) -> None:
        assert self._connections is not None
        try:
            async with asyncio.timeout(BLOCKED_SECONDS):
                await self._connections.request("GET", "/livez")
        except TimeoutError:
            where = await process.where()
            self._why = f"was killed: {where or 'its code'} blocked its event loop"
            log.warning(
                "the server %s %s. Make the handler a plain def, or await what it waits for", self.url, self._why
            )
            process.kill()
        except Failure:
            return


def transport_of(hosting: Hosting, *, isolate: bool) -> Any:
    """A context manager that starts the server and gives its transport."""
    start: Callable[[Hosting], Any] = InChild.started if isolate else InProcess.started
    return start(hosting)
