"""One sandbox of any provider: start, exec, upload, download, stop."""

from __future__ import annotations

import asyncio
import inspect
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Self

from nemo_gym.sandbox.providers.base import (
    SandboxEndpoint,
    SandboxExecResult,
    SandboxHandle,
    SandboxSpec,
    SandboxStatus,
)
from nemo_gym.sandbox.providers.registry import create_provider

#: Seconds that a command may run unless told otherwise.
DEFAULT_TIMEOUT_S = 180


class AsyncSandbox:
    """A sandbox. `provider` is a provider, or `{NAME: settings}` of one.

    async with AsyncSandbox({"ludus": {}}, SandboxSpec(workdir="/work")) as sandbox:
        result = await sandbox.exec("echo hello")

    Entering the block starts the sandbox, at its first use if no spec was given: `start(spec)` may come before. Leaving
    the block stops the sandbox. `stop` also closes the provider, unless `owns_provider` is False: then several
    sandboxes can share a provider.
    """

    def __init__(self, provider: Any, spec: SandboxSpec | None = None, *, owns_provider: bool = True) -> None:
        self._provider = create_provider(provider) if isinstance(provider, Mapping) else provider
        self._spec = spec
        self._owns_provider = owns_provider
        self._handle: SandboxHandle | None = None
        self._connected = False
        self._provider_closed = False
        self._in_block = False  # without a start of the caller's own
        self._starting = asyncio.Lock()

    @property
    def provider(self) -> Any:
        """The provider that runs the sandbox."""
        return self._provider

    @property
    def spec(self) -> SandboxSpec | None:
        """What the sandbox was made of."""
        return self._spec

    @property
    def handle(self) -> SandboxHandle | None:
        """The sandbox as its provider knows it; None while there is none."""
        return self._handle

    @property
    def sandbox_id(self) -> str | None:
        """The provider's id of the sandbox; None while there is none."""
        return self._handle.sandbox_id if self._handle is not None else None

    @property
    def pty(self) -> Any:
        """The provider's terminals, where it has any; else None."""
        return getattr(self._provider, "pty", None)

    async def start(self, spec: SandboxSpec | None = None) -> Self:
        """Create the sandbox, and upload the files of its spec. One whose files cannot be uploaded is closed."""
        if self._handle is not None and not (self._in_block and spec in (None, self._spec)):
            raise RuntimeError(f"sandbox {self._handle.sandbox_id} has started already: stop() it first")
        self._in_block = False
        return self if self._handle is not None else await self._create(spec)

    async def _create(self, spec: SandboxSpec | None) -> Self:
        self._spec = spec or self._spec or SandboxSpec()
        self._handle = await self._provider.create(self._spec)
        self._provider_closed = False
        if self._spec.files:
            try:
                await self._upload_texts(self._spec.files)
            except BaseException:
                await self.stop()
                raise
        return self

    async def start_with_setup(
        self, spec: SandboxSpec | None, setup: Callable[[AsyncSandbox], Awaitable[Any]]
    ) -> AsyncSandbox:
        """Start, then await `setup(self)`. If the set-up raises, the sandbox is stopped."""
        await self.start(spec)
        try:
            await setup(self)
        except BaseException:
            await self.stop()
            raise
        return self

    async def exec(
        self,
        command: str,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float | None = DEFAULT_TIMEOUT_S,
        user: str | int | None = None,
        preserve_background_services: bool = False,
    ) -> SandboxExecResult:
        """Run a shell command. With `preserve_background_services`, what it left running in the background stays."""
        handle = await self._running()
        options: dict[str, Any] = {"preserve_background_services": True} if preserve_background_services else {}
        result: SandboxExecResult = await self._provider.exec(
            handle, command, cwd=cwd, env=env, timeout_s=timeout_s, user=user, **options
        )
        return result

    async def upload(self, local_path: str | Path, remote_path: str) -> None:
        """Copy a file of this machine into the sandbox."""
        await self._provider.upload_file(await self._running(), Path(local_path), str(remote_path))

    async def download(self, remote_path: str, local_path: str | Path) -> None:
        """Copy a file of the sandbox to this machine."""
        await self._provider.download_file(await self._running(), str(remote_path), Path(local_path))

    async def status(self) -> SandboxStatus:
        """The state of the sandbox; `stopped` while there is none."""
        if self._handle is None:
            return SandboxStatus.STOPPED
        return SandboxStatus(await self._provider.status(self._handle))

    async def endpoint(self, port: int) -> SandboxEndpoint:
        """Where a port of the sandbox is reached."""
        endpoint: SandboxEndpoint = await self._ability("endpoint")(await self._running(), port)
        return endpoint

    async def pause(self) -> None:
        """Stop all processes of the sandbox, and keep them."""
        await self._ability("pause")(self._started())

    async def resume(self) -> None:
        """Let a paused sandbox go on."""
        await self._ability("resume")(self._started())

    async def serialize(self) -> dict[str, Any]:
        """A descriptor of the sandbox, as JSON, with which another process can `connect` to it."""
        descriptor = self._ability("serialize_handle")(await self._running())
        return dict(await descriptor if inspect.isawaitable(descriptor) else descriptor)

    @classmethod
    async def connect(cls, descriptor: Mapping[str, Any], *, provider: Any, owns_provider: bool = True) -> Self:
        """A sandbox that runs already. `disconnect` leaves it running, `stop` ends it."""
        sandbox = cls(provider, owns_provider=owns_provider)
        try:
            handle = sandbox._ability("connect")(descriptor)
            sandbox._handle = await handle if inspect.isawaitable(handle) else handle
        except BaseException:
            await sandbox._release_provider()
            raise
        sandbox._connected = True
        return sandbox

    async def disconnect(self) -> None:
        """Let go of a sandbox that `connect` gave. The sandbox runs on."""
        if not self._connected:
            raise RuntimeError("disconnect() is for sandboxes of connect(): use stop() for one that you started")
        self._handle, self._connected = None, False
        await self._release_provider()

    async def stop(self) -> None:
        """End the sandbox, and close its provider if it is our own. After an error, call it again."""
        if self._handle is not None:
            await self._provider.close(self._handle)
            self._handle, self._connected = None, False
        await self._release_provider()

    async def __aenter__(self) -> Self:
        in_block = self._handle is None
        if in_block and self._spec is not None:
            try:
                await self.start()
            except BaseException:
                await self._release_provider()
                raise
        self._in_block = in_block
        return self

    async def __aexit__(self, *exc: object) -> None:
        self._in_block = False
        await self.stop()

    async def _running(self) -> SandboxHandle:
        """The sandbox, which is started now if a block was entered without a spec."""
        async with self._starting:
            if self._handle is None and self._in_block:
                await self._create(None)
        return self._started()

    async def _release_provider(self) -> None:
        if self._owns_provider and not self._provider_closed and hasattr(self._provider, "aclose"):
            await self._provider.aclose()
            self._provider_closed = True

    async def _upload_texts(self, files: Mapping[str, str]) -> None:
        with tempfile.TemporaryDirectory(prefix="sandbox-files-") as folder:
            for number, (target, text) in enumerate(files.items()):
                await self._provider.upload_file(self._started(), _text_file(Path(folder, str(number)), text), target)

    def _started(self) -> SandboxHandle:
        if self._handle is None:
            raise RuntimeError("the sandbox has not started: await start() first")
        return self._handle

    def _ability(self, method: str) -> Callable[..., Any]:
        """A method that not every provider has."""
        ability: Callable[..., Any] | None = getattr(self._provider, method, None)
        if ability is None:
            name = getattr(self._provider, "name", type(self._provider).__name__)
            raise NotImplementedError(f"sandbox provider {name} has no {method}(): use another provider")
        return ability


def _text_file(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path
