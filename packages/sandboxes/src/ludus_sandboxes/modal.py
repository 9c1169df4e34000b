"""Sandboxes of Modal, by its Python package: Modal has no public API over HTTP.

Tested against a local double of the package's classes only (`App.lookup`, `Image`, `Sandbox.create`, `exec`,
`terminate`). Not certain from its documentation: how a program that passes the memory limit ends.

    MODAL_TOKEN_ID, MODAL_TOKEN_SECRET   the key; without these, what `modal setup` stored
"""

from __future__ import annotations

import asyncio
import math
import os
from collections.abc import Awaitable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from ludus.errors import UserError, install_command
from ludus.runtime.keys import look_up_key, without_keys_and_paths
from ludus.sandbox.protocol import SandboxError, SandboxSpec
from ludus_sandboxes.hosted import GRACE, LIFETIME, HostedProvider, HostedSandbox, Ran
from ludus_sandboxes.hosted_http import TooLarge

T = TypeVar("T")

KEYS = ("MODAL_TOKEN_ID", "MODAL_TOKEN_SECRET")

_APP = "ludus"
_START = 600.0
_STOP = 60.0
_PIECE = 1 << 20
_OUTPUT_BYTES = 64 << 20


class ModalProvider(HostedProvider):
    """Opens sandboxes of Modal, in an app called `ludus`. The image of a spec comes from a registry."""

    name = "modal"
    about = "machines of Modal"

    @classmethod
    def problem(cls) -> str | None:
        """Why Modal cannot be used, or None."""
        if find_spec("modal") is None:
            return f"modal is not installed. Install it with: {install_command('modal', package='sandboxes')}"
        stored = Path(os.environ.get("MODAL_CONFIG_PATH") or "~/.modal.toml").expanduser()
        if all(look_up_key(name) for name in KEYS) or stored.exists():
            return None
        return f"{' and '.join(KEYS)} are not set. Set them, or run: modal setup"

    def __init__(self) -> None:
        super().__init__()
        if why := self.problem():
            raise UserError(f"sandbox provider modal: {why}")
        self._app: asyncio.Task[tuple[Any, Any]] | None = None

    async def _create(self, spec: SandboxSpec) -> HostedSandbox:
        import modal

        if self._app is None or (self._app.done() and self._app.exception() is not None):
            self._app = asyncio.create_task(_look_up_app())
        client, app = await asyncio.shield(self._app)
        image = modal.Image.from_registry(spec.image) if spec.image else modal.Image.debian_slim()
        made = modal.Sandbox.create.aio(
            app=app,
            client=client,
            image=image,
            timeout=LIFETIME,
            memory=(spec.limits.memory_mb, spec.limits.memory_mb),
            block_network=not spec.network,
        )
        return ModalSandbox(spec, self, await _asked(made, _START))

    async def _disconnect(self) -> None:
        if self._app is not None:
            self._app.cancel()
            await asyncio.gather(self._app, return_exceptions=True)


class ModalSandbox(HostedSandbox):
    """One sandbox of Modal. Files are uploaded through the stdin of a command."""

    def __init__(self, spec: SandboxSpec, provider: HostedProvider, handle: Any) -> None:
        super().__init__(spec, provider)
        self._handle = handle

    async def _shell(self, command: str, seconds: float) -> Ran:
        return await _asked(self._command(command, seconds), seconds + GRACE)

    async def _upload(self, path: str, data: bytes) -> None:
        ran = await _asked(self._command(f"cat > {path}", 300.0, data), 300.0 + GRACE)
        if ran.code != 0:
            raise SandboxError(f"modal could not upload a file: exit code {ran.code}")

    async def _end(self) -> None:
        await _asked(self._handle.terminate.aio(), _STOP)

    async def _command(self, command: str, seconds: float, data: bytes | None = None) -> Ran:
        process = await self._handle.exec.aio("/bin/sh", "-c", command, timeout=math.ceil(seconds), text=False)
        if data is not None:
            for at in range(0, len(data), _PIECE):
                process.stdin.write(data[at : at + _PIECE])
                await process.stdin.drain.aio()
            process.stdin.write_eof()
            await process.stdin.drain.aio()
        output = bytearray()
        async for piece in process.stdout:
            output += piece
            if len(output) > _OUTPUT_BYTES:
                raise TooLarge(f"a program printed more than {_OUTPUT_BYTES:,} bytes")
        code = await process.wait.aio()
        return Ran(code, bytes(output), late=code == -1)  # -1: Modal stopped the command at its timeout


async def _look_up_app() -> tuple[Any, Any]:
    """The client, or None for the one that Modal's package makes, and the app that all sandboxes belong to."""
    import modal

    token_id, secret = (look_up_key(name) for name in KEYS)
    client = None
    if token_id and secret:
        client = await _asked(modal.Client.from_credentials.aio(token_id, secret), _START)
    return client, await _asked(modal.App.lookup.aio(_APP, client=client, create_if_missing=True), _START)


async def _asked(answer: Awaitable[T], seconds: float) -> T:
    """What Modal answers. The package raises errors of many kinds, which are all the service's."""
    try:
        async with asyncio.timeout(seconds) as limit:
            return await answer
    except SandboxError:
        raise
    except Exception as error:
        if limit.expired():
            raise SandboxError(f"modal did not answer within {seconds:g} s") from error
        text = without_keys_and_paths(" ".join(str(error).split()))
        raise SandboxError(f"modal failed: {type(error).__name__}: {text:.300}") from error
