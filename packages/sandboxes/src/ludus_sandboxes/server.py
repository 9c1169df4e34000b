"""A sandbox server: the sandboxes of this machine for programs on other machines.

Every sandbox has an owner, a client that sends heartbeats. When the heartbeats of an owner stop, its sandboxes are
closed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from secrets import token_hex
from time import monotonic
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from ludus.errors import UserError
from ludus.http.app import App
from ludus.http.guard import Guard
from ludus.http.messages import Incoming, Refusal, Reply
from ludus.runtime.wording import describe_errors
from ludus.sandbox.egress import is_public_entry
from ludus.sandbox.protocol import Program, Sandbox, SandboxProvider
from ludus_sandboxes.wire import ExecMessage, FileMessage, SpecMessage, bytes_of, result_message, text_of

log = logging.getLogger("ludus.serve")

#: Seconds without a heartbeat after which an owner counts as dead. Clients send three heartbeats in that time.
SILENCE = 60.0

M = TypeVar("M", bound=BaseModel)


@dataclass
class _Opened:
    sandbox: Sandbox
    owner: str


class SandboxApp(App):
    """The sandboxes of a provider over HTTP."""

    def __init__(
        self,
        provider: SandboxProvider,
        *,
        guard: Guard | None = None,
        most: int = 256,
        silence: float = SILENCE,
        images: Sequence[str] = (),
    ) -> None:
        super().__init__(guard)
        self.provider = provider
        self._most = most
        self._silence = silence
        self._images = images
        self._opened: dict[str, _Opened] = {}
        self._opening = 0
        self._heard: dict[str, float] = {}
        self._reaper: asyncio.Task[None] | None = None
        for name in ("open", "exec", "python", "read", "write", "snapshot", "restore", "allow_hosts", "deny_hosts"):
            self.routes["POST", f"/sandbox/{name}"] = getattr(self, name)
        self.routes["POST", "/sandbox/close"] = self.close_one
        self.routes["POST", "/sandbox/renew"] = self.renew

    async def start(self) -> None:
        """Begin to watch the owners' heartbeats."""
        self._reaper = asyncio.create_task(self._reap())

    async def stop(self) -> None:
        """Close every sandbox."""
        if self._reaper is not None:
            self._reaper.cancel()
        await asyncio.gather(*(opened.sandbox.close() for opened in self._opened.values()), return_exceptions=True)
        self._opened.clear()
        await self.provider.close()

    def state(self) -> dict[str, float]:
        """The gauges that `/health` and `/metrics` report."""
        return {**super().state(), "sandboxes": len(self._opened), "sandboxes_most": self._most}

    async def open(self, incoming: Incoming) -> Reply:
        """Open a sandbox for an owner."""
        body = incoming.json()
        owner = body.get("owner")
        if not isinstance(owner, str) or not owner:
            raise Refusal(422, "owner: a name for the client is missing")
        try:
            spec = _checked(SpecMessage, body.get("spec")).spec()
        except (TypeError, ValueError) as error:
            raise Refusal(422, f"spec: {error}") from error
        if spec.network or (spec.image is not None and spec.image not in self._images):
            raise Refusal(403, "this server offers no network, and only its own images", kind="sandbox")
        if len(self._opened) + self._opening >= self._most:
            raise Refusal(429, f"{self._most} sandboxes are open already", kind="http_429")
        self._heard[owner] = monotonic()
        self._opening += 1
        try:
            sandbox = await self.provider.open(spec)
        except (OSError, ValueError, UserError) as error:
            raise Refusal(422, f"spec: {error}", kind="sandbox") from error
        finally:
            self._opening -= 1
        self._heard[owner] = monotonic()
        name = token_hex(16)
        self._opened[name] = _Opened(sandbox, owner)
        return Reply.of({"sandbox": name})

    async def exec(self, incoming: Incoming) -> Reply:
        """Run a program or a shell script."""
        return await self._run(incoming, ExecMessage.command_program)

    async def python(self, incoming: Incoming) -> Reply:
        """Run a Python program."""
        return await self._run(incoming, ExecMessage.python_program)

    async def read(self, incoming: Incoming) -> Reply:
        """The content of a file."""
        message = _checked(FileMessage, incoming.json())
        return await self._file(message, lambda sandbox: sandbox.read(message.path, message.max_bytes))

    async def write(self, incoming: Incoming) -> Reply:
        """Write a file."""
        message = _checked(FileMessage, incoming.json())
        data = _bytes(message.data)
        return await self._file(
            message, lambda sandbox: sandbox.write(message.path, data, executable=message.executable)
        )

    async def snapshot(self, incoming: Incoming) -> Reply:
        """The files under HOME."""
        return await self._file(_checked(FileMessage, incoming.json()), lambda sandbox: sandbox.snapshot())

    async def restore(self, incoming: Incoming) -> Reply:
        """Unpack a snapshot."""
        message = _checked(FileMessage, incoming.json())
        return await self._file(message, lambda sandbox: sandbox.restore(_bytes(message.data)))

    async def allow_hosts(self, incoming: Incoming) -> Reply:
        """Let programs reach some hosts. An entry with a port could name this machine, or others of its network."""
        message = _checked(FileMessage, incoming.json())
        if private := [host for host in message.hosts if not is_public_entry(host)]:
            hint = f"name hosts without a port, not {private[0]!r:.80}"
            raise Refusal(403, f"this server lets programs reach public addresses only: {hint}", kind="sandbox")
        return await self._file(message, lambda sandbox: sandbox.allow_hosts(message.hosts))

    async def deny_hosts(self, incoming: Incoming) -> Reply:
        """Block the hosts again."""
        return await self._file(_checked(FileMessage, incoming.json()), lambda sandbox: sandbox.deny_hosts())

    async def close_one(self, incoming: Incoming) -> Reply:
        """Close a sandbox. Closing it twice is not an error."""
        message = _checked(FileMessage, incoming.json())
        opened = self._opened.get(message.sandbox)
        if opened is None or opened.owner != message.owner:
            return Reply.of({"closed": False})
        del self._opened[message.sandbox]
        await opened.sandbox.close()
        return Reply.of({"closed": True})

    async def renew(self, incoming: Incoming) -> Reply:
        """A heartbeat of an owner."""
        owner = incoming.json().get("owner")
        if not isinstance(owner, str) or owner not in self._heard:
            return Reply.of({"known": False})
        self._heard[owner] = monotonic()
        return Reply.of({"known": True})

    async def _run(self, incoming: Incoming, program_of: Callable[[ExecMessage], Program]) -> Reply:
        message = _checked(ExecMessage, incoming.json())
        try:
            program = program_of(message)
        except ValueError as error:
            raise Refusal(422, f"stdin is not base64: {error}") from error
        running = self._find(message.owner, message.sandbox).run(program)
        return Reply.of(result_message(await incoming.cancel_on_disconnect(running)))

    async def _file(self, message: FileMessage, work: Callable[[Sandbox], Awaitable[bytes | None]]) -> Reply:
        try:
            data = await work(self._find(message.owner, message.sandbox))
        except OSError as error:
            kind = "no_file" if isinstance(error, FileNotFoundError) else "file"
            raise Refusal(409, str(error), kind=kind) from error
        return Reply.of({"data": text_of(data or b"")})

    def _find(self, owner: str, name: str) -> Sandbox:
        opened = self._opened.get(name)
        if opened is None or opened.owner != owner:
            raise Refusal(410, "this sandbox is gone: it was closed, or its owner sent no heartbeat", kind="sandbox")
        self._heard[owner] = monotonic()
        return opened.sandbox

    async def _reap(self) -> None:
        while True:
            await asyncio.sleep(self._silence / 4)
            since = monotonic() - self._silence
            for owner in [owner for owner, heard in self._heard.items() if heard < since]:
                del self._heard[owner]
                gone = [name for name, opened in self._opened.items() if opened.owner == owner]
                log.warning("closed %d sandboxes: their owner sent no heartbeat for %g s", len(gone), self._silence)
                for name in gone:
                    opened = self._opened.pop(name, None)  # its owner may close it at the same time
                    if opened is not None:
                        with suppress(Exception):
                            await opened.sandbox.close()


def _bytes(text: str) -> bytes:
    try:
        return bytes_of(text)
    except ValueError as error:
        raise Refusal(422, f"not base64: {error}") from error


def _checked(kind: type[M], body: object) -> M:
    try:
        return kind.model_validate(body)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"])) or "body"
        raise Refusal(422, describe_errors(field, [first])) from error
