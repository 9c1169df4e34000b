"""Sandboxes on other machines that run `ludus serve sandbox`, spread over all of them."""

from __future__ import annotations

import asyncio
import os
from base64 import b64decode
from collections.abc import Sequence
from contextlib import suppress
from secrets import token_hex
from time import monotonic, perf_counter
from typing import Any

import orjson

from ludus.errors import Failure, UserError
from ludus.http.client import Connections
from ludus.http.connection import HttpReply
from ludus.http.retries import Attempts, Retries
from ludus.runtime.boundary import in_time
from ludus.runtime.deadline import queueing
from ludus.runtime.keys import look_up_key, without_keys_and_paths
from ludus.sandbox.features import require
from ludus.sandbox.protocol import READ_BYTES, ExecResult, Program, Sandbox, SandboxError, SandboxProvider, SandboxSpec
from ludus_sandboxes.wire import program_message, result_of, spec_message, text_of

#: Seconds between two heartbeats to a server.
_HEARTBEAT = 15.0

#: Seconds that a server gets for a reply beyond a program's own time limit, and for opening a sandbox.
_GRACE, _OPEN = 60.0, 120.0

#: Seconds to wait for a free place when all servers are full, and to leave an unreachable server alone.
_WAIT, _REST = 600.0, 10.0
#: Asking again for a place while all servers are full, until `_WAIT` is over.
_RETRIES = Retries(busy=1_000_000, first_pause=0.05, longest_pause=2.0)

#: Seconds in which a server must answer before the first rollout.
_CHECK = 20.0


class SandboxServer:
    """One server: its connections, and how many of our sandboxes it runs."""

    def __init__(self, url: str, owner: str, token: str) -> None:
        headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
        self.connections = Connections(url, headers, reply_bytes=1 << 30)
        self.url = url
        self.owner = owner
        self.sandboxes = 0
        self.resting_until = 0.0

    async def ask(self, action: str, *, within: float = _GRACE, **fields: Any) -> Any:
        """Send a request and return the JSON of the reply. Raises a `SandboxError`, or `OSError` about a file."""
        body = orjson.dumps({"owner": self.owner, **fields})
        try:
            reply = await in_time(within, self.connections.request("POST", f"/sandbox/{action}", body))
        except TimeoutError as error:
            raise SandboxError(f"{self.url} did not answer within {within:g} s") from error
        except Failure as error:
            raise SandboxError(error.cause) from error
        if reply.status == 200:
            return reply.json()
        raise _error(self.url, reply)


class _Full(SandboxError):
    """A server has no place left."""


def _error(url: str, reply: HttpReply) -> Exception:
    try:
        content = orjson.loads(reply.body)
    except orjson.JSONDecodeError:
        content = {}
    kind = content.get("kind") if isinstance(content, dict) else None
    text = without_keys_and_paths(str(content.get("detail"))) if kind else reply.start()
    if kind == "no_file":
        return FileNotFoundError(str(content["detail"]))
    if kind == "file":
        return OSError(str(content["detail"]))
    if reply.status == 401:
        return UserError(f"{url} wants a token", "Set LUDUS_TOKEN to the token of the sandbox server")
    return (_Full if reply.status == 429 else SandboxError)(f"{url} answered {reply.status}: {text}")


class RemoteProvider(SandboxProvider):
    """Opens each sandbox on the server that runs the fewest of ours."""

    name = "remote"
    lacks = frozenset({"mounts"})

    def __init__(self, urls: Sequence[str], token_env: str = "LUDUS_TOKEN") -> None:
        if not urls:
            hint = "Name them: --set resources.sandbox.provider=remote --set 'resources.sandbox.urls=[\"http://HOST:PORT\"]'"
            raise UserError("the sandbox provider remote needs the URLs of its servers", hint)
        owner, token = f"{os.getpid()}-{token_hex(8)}", look_up_key(token_env)
        self._servers = [SandboxServer(url, owner, token) for url in urls]
        self._opened: set[RemoteSandbox] = set()
        self._abandoned: set[asyncio.Task[None]] = set()
        self._reporting: asyncio.Task[None] | None = None

    async def check(self, spec: SandboxSpec) -> None:
        """Ask the servers until one answers."""
        failure = SandboxError("no sandbox server can be reached")
        for server in self._servers:
            try:
                await server.ask("renew", within=_CHECK)
            except SandboxError as error:
                failure = error
            else:
                return
        raise failure

    async def open(self, spec: SandboxSpec) -> RemoteSandbox:
        """A sandbox on the server with the fewest, when one has a place."""
        require(self, spec)
        if self._reporting is None:
            self._reporting = asyncio.create_task(self._report())
        attempts = Attempts(_RETRIES, perf_counter() + _WAIT)
        with queueing():
            while True:
                try:
                    return await self._open(spec)
                except _Full:
                    pause = attempts.pause("busy")
                    if pause is None:
                        raise
                await asyncio.sleep(pause)

    async def _open(self, spec: SandboxSpec) -> RemoteSandbox:
        failure: Exception = SandboxError("no sandbox server can be reached")
        now = monotonic()
        for server in sorted(self._servers, key=lambda server: (server.resting_until > now, server.sandboxes)):
            server.sandboxes += 1
            asking = asyncio.ensure_future(server.ask("open", spec=spec_message(spec), within=_OPEN))
            try:
                reply = await asyncio.shield(asking)
            except BaseException as error:
                if isinstance(error, asyncio.CancelledError) and not asking.cancelled():
                    self._abandon(server, asking)  # the server may open the sandbox anyway
                server.sandboxes -= 1
                if not isinstance(error, SandboxError):
                    raise
                if not isinstance(error, _Full):
                    server.resting_until = monotonic() + _REST
                if not isinstance(failure, _Full):  # a full server is worth a retry, so report that
                    failure = error
                continue
            sandbox = RemoteSandbox(spec, server, reply["sandbox"], self._opened.discard)
            self._opened.add(sandbox)
            return sandbox
        raise failure

    def _abandon(self, server: SandboxServer, asking: asyncio.Future[Any]) -> None:
        """Close the sandbox of a cancelled `open` when the server has opened it."""

        async def close() -> None:
            with suppress(Exception):
                await server.ask("close", sandbox=(await asking)["sandbox"])

        task = asyncio.create_task(close())
        self._abandoned.add(task)
        task.add_done_callback(self._abandoned.discard)

    async def close(self) -> None:
        """Close every sandbox that is still open."""
        await asyncio.gather(*self._abandoned)
        if self._reporting is not None:
            self._reporting.cancel()
        await asyncio.gather(*(sandbox.close() for sandbox in list(self._opened)), return_exceptions=True)
        for server in self._servers:
            await server.connections.close()

    async def _report(self) -> None:
        while True:
            await asyncio.sleep(_HEARTBEAT)
            for server in self._servers:
                if server.sandboxes:
                    with suppress(SandboxError):
                        await server.ask("renew")


class RemoteSandbox(Sandbox):
    """A sandbox on another machine."""

    def __init__(self, spec: SandboxSpec, server: SandboxServer, name: str, on_close: Any) -> None:
        self.spec = spec
        self._server = server
        self._name = name
        self._on_close = on_close
        self._closed = False

    async def run(self, program: Program) -> ExecResult:
        """Run a program."""
        action = "exec" if program.source is None else "python"
        return result_of(await self._ask(action, within=program.timeout + _GRACE, **program_message(program)))

    async def read(self, path: str, max_bytes: int = READ_BYTES) -> bytes:
        """The content of a file."""
        return b64decode((await self._ask("read", path=path, max_bytes=max_bytes))["data"])

    async def write(self, path: str, data: bytes, *, executable: bool = False) -> None:
        """Write a file."""
        await self._ask("write", path=path, data=text_of(data), executable=executable)

    async def snapshot(self) -> bytes:
        """The files under HOME."""
        return b64decode((await self._ask("snapshot"))["data"])

    async def restore(self, snapshot: bytes) -> None:
        """Unpack a snapshot."""
        await self._ask("restore", data=text_of(snapshot))

    async def allow_hosts(self, hosts: Sequence[str]) -> None:
        """Let programs reach these hosts."""
        await self._ask("allow_hosts", hosts=list(hosts))

    async def deny_hosts(self) -> None:
        """Close what `allow_hosts` opened."""
        await self._ask("deny_hosts")

    async def close(self) -> None:
        """Close the sandbox. A server that cannot be reached closes it when our heartbeats stop."""
        if self._closed:
            return
        self._closed = True
        self._server.sandboxes -= 1
        self._on_close(self)
        with suppress(SandboxError):
            await self._server.ask("close", sandbox=self._name)

    async def _ask(self, action: str, *, within: float = _GRACE, **fields: Any) -> Any:
        if self._closed:
            raise RuntimeError("the sandbox is closed")
        return await self._server.ask(action, within=within, sandbox=self._name, **fields)
