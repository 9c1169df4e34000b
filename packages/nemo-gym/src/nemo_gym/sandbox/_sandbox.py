"""A sandbox for code without an event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, Self, TypeVar

from nemo_gym.sandbox._async_sandbox import DEFAULT_TIMEOUT_S, AsyncSandbox
from nemo_gym.sandbox.providers.base import SandboxEndpoint, SandboxExecResult, SandboxSpec, SandboxStatus

T = TypeVar("T")


class _LoopThread:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="sandbox", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of a coroutine. An interrupt of the caller cancels it."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def close(self) -> None:
        """End the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=30)
        if not self._thread.is_alive():
            self._loop.close()


class Sandbox:
    """`AsyncSandbox` with blocking calls, which run on an event loop in a thread of their own.

    Calls from a running event loop are refused, because they would block it: use `AsyncSandbox` there.
    """

    def __init__(self, provider: Any, spec: SandboxSpec | None = None, *, owns_provider: bool = True) -> None:
        self._sandbox = AsyncSandbox(provider, spec, owns_provider=owns_provider)
        self._thread: _LoopThread | None = None

    @property
    def provider(self) -> Any:
        """The provider that runs the sandbox."""
        return self._sandbox.provider

    @property
    def spec(self) -> SandboxSpec | None:
        """What the sandbox was made of."""
        return self._sandbox.spec

    @property
    def sandbox_id(self) -> str | None:
        """The provider's id of the sandbox; None while there is none."""
        return self._sandbox.sandbox_id

    @property
    def pty(self) -> Any:
        """The provider's terminals, where it has any; else None."""
        return self._sandbox.pty

    def start(self, spec: SandboxSpec | None = None) -> Self:
        """Create the sandbox, and upload the files of its spec."""
        try:
            self._run(self._sandbox.start, spec)
        except BaseException:
            if self._sandbox.handle is None:
                self._end_thread()
            raise
        return self

    def start_with_setup(self, spec: SandboxSpec | None, setup: Callable[[Self], Any]) -> Self:
        """Start, then call `setup(self)`. If the set-up raises, the sandbox is stopped."""
        self.start(spec)
        try:
            setup(self)
        except BaseException:
            self.stop()
            raise
        return self

    def exec(
        self,
        command: str,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float | None = DEFAULT_TIMEOUT_S,
        user: str | int | None = None,
        preserve_background_services: bool = False,
    ) -> SandboxExecResult:
        """Run a shell command."""
        options = {"cwd": cwd, "env": env, "timeout_s": timeout_s, "user": user}
        return self._run(
            self._sandbox.exec, command, **options, preserve_background_services=preserve_background_services
        )

    def upload(self, local_path: str | Path, remote_path: str) -> None:
        """Copy a file of this machine into the sandbox."""
        self._run(self._sandbox.upload, local_path, remote_path)

    def download(self, remote_path: str, local_path: str | Path) -> None:
        """Copy a file of the sandbox to this machine."""
        self._run(self._sandbox.download, remote_path, local_path)

    def status(self) -> SandboxStatus:
        """The state of the sandbox; `stopped` while there is none."""
        return SandboxStatus.STOPPED if self._sandbox.handle is None else self._run(self._sandbox.status)

    def endpoint(self, port: int) -> SandboxEndpoint:
        """Where a port of the sandbox is reached."""
        return self._run(self._sandbox.endpoint, port)

    def pause(self) -> None:
        """Stop all processes of the sandbox, and keep them."""
        self._run(self._sandbox.pause)

    def resume(self) -> None:
        """Let a paused sandbox go on."""
        self._run(self._sandbox.resume)

    def serialize(self) -> dict[str, Any]:
        """A descriptor of the sandbox, as JSON, with which another process can `connect` to it."""
        return self._run(self._sandbox.serialize)

    @classmethod
    def connect(cls, descriptor: Mapping[str, Any], *, provider: Any, owns_provider: bool = True) -> Self:
        """A sandbox that runs already. `disconnect` leaves it running, `stop` ends it."""
        sandbox = cls(provider, owns_provider=owns_provider)
        inner = sandbox._sandbox
        try:
            sandbox._sandbox = sandbox._run(
                AsyncSandbox.connect, descriptor, provider=inner.provider, owns_provider=owns_provider
            )
        except BaseException:
            sandbox._end_thread()
            raise
        return sandbox

    def disconnect(self) -> None:
        """Let go of a sandbox that `connect` gave. The sandbox runs on."""
        self._run(self._sandbox.disconnect)
        self._end_thread()

    def stop(self) -> None:
        """End the sandbox, and close its provider if it is our own. After an error, call it again."""
        self._run(self._sandbox.stop)
        self._end_thread()

    def __enter__(self) -> Self:
        try:
            self._run(self._sandbox.__aenter__)
        except BaseException:
            self._end_thread()
            raise
        return self

    def __exit__(self, *exc: object) -> None:
        self._run(self._sandbox.__aexit__, *exc)
        self._end_thread()

    def _run(self, call: Callable[..., Coroutine[Any, Any, T]], *args: Any, **options: Any) -> T:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            if self._thread is None:
                self._thread = _LoopThread()
            return self._thread.run(call(*args, **options))
        raise RuntimeError("Sandbox blocks, and this thread runs an event loop: use AsyncSandbox")

    def _end_thread(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.close()
