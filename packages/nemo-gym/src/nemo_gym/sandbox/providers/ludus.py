"""NeMo Gym's sandboxes on Ludus's own: bubblewrap, runc for images, or a server of sandboxes."""

from __future__ import annotations

import asyncio
import os
import posixpath
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ludus.errors import UserError
from ludus.sandbox import HOME, ExecResult, Program, SandboxError, SandboxLimits
from ludus.sandbox import Sandbox as LudusSandbox
from ludus.sandbox import SandboxProvider as LudusSandboxProvider
from ludus.sandbox import SandboxSpec as LudusSpec
from ludus.sandbox.choice import open_provider
from ludus.sandbox.stage import python_prefix
from nemo_gym.sandbox.providers._commands import OUTPUT_BYTES, TIMEOUT, TIMEOUT_CODE
from nemo_gym.sandbox.providers._instead import INSTEAD
from nemo_gym.sandbox.providers._shell import BACKGROUND, RUN, checked_variables, script
from nemo_gym.sandbox.providers._turns import run_in_turns
from nemo_gym.sandbox.providers.base import (
    SandboxCreateError,
    SandboxEndpoint,
    SandboxExecResult,
    SandboxHandle,
    SandboxSpec,
    SandboxStatus,
    resources_of,
)

#: Folders at the root of a sandbox without an image that are there already. Others can lie in HOME and be linked.
_SYSTEM = frozenset("bin dev etc home lib lib32 lib64 opt proc sbin sys tmp usr".split())

#: The largest file that a download takes.
_FILE_BYTES = 256 << 20

_ONLY_USER = (None, "root", "0", 0, "user")


@dataclass
class _Opened:
    sandbox: LudusSandbox
    workdir: str
    open: bool = True


class LudusProvider:
    """Opens sandboxes of Ludus, without an account, a daemon or a container engine.

    sandbox_provider: {ludus: {provider: auto, memory_mib: 4096}}

    `provider` is one of Ludus's: `auto` takes bubblewrap for a spec without an image and runc for one with an image.
    `images` maps names of images to folders or tar archives of root file systems. There is no network unless `network`
    is true, which gives programs the host's. A sandbox has one user, so `user` may be `root` only. What commands leave
    in the background runs on until the sandbox is closed.
    """

    name = "ludus"
    #: Whether commands of one sandbox run at the same time.
    concurrent = True

    def __init__(
        self,
        provider: str = "auto",
        urls: Sequence[str] = (),
        images: Mapping[str, str] | None = None,
        network: bool = False,
        memory_mib: int = 2048,
        disk_mib: int = 1024,
        processes: int = 256,
        default_timeout_s: float = 180,
    ) -> None:
        self._provider_name, self._urls = provider, tuple(urls)
        self._images, self._network = dict(images or {}), network
        self._memory_mib, self._disk_mib, self._processes = memory_mib, disk_mib, processes
        self._default_timeout_s = default_timeout_s
        self._opening = asyncio.Lock()
        self._provider: LudusSandboxProvider | None = None

    async def create(self, spec: SandboxSpec) -> SandboxHandle:
        """Open a sandbox with the spec's image, variables, limits and working directory."""
        try:
            async with asyncio.timeout(spec.ready_timeout_s):
                provider = await self._provider_for(spec)
                ours = self._spec(spec)
                sandbox = await provider.open(ours)
        except (UserError, SandboxError, TimeoutError) as error:
            raise SandboxCreateError(self._why(error)) from error
        opened = _Opened(sandbox, _joined(HOME, spec.workdir))
        try:
            folders = [f"{HOME}/{name}" for name in ours.folders]
            made = await sandbox.exec(["mkdir", "-p", "--", *folders, opened.workdir])
            if not made.ok:
                raise SandboxCreateError(f"the sandbox has no folder {opened.workdir}: {made.last_line or made.why}")
            if spec.entrypoint:
                await sandbox.exec(script(BACKGROUND, *map(str, spec.entrypoint)), cwd=opened.workdir)
        except BaseException as error:
            await sandbox.close()
            if isinstance(error, SandboxError):
                raise SandboxCreateError(self._why(error)) from error
            raise
        return SandboxHandle(f"ludus-{uuid.uuid4().hex[:12]}", self.name, opened)

    async def exec(
        self,
        handle: SandboxHandle,
        command: str,
        *,
        cwd: str | None = None,
        env: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
        user: str | int | None = None,
        preserve_background_services: bool = False,
    ) -> SandboxExecResult:
        """Run a command with bash, else with sh. A limit that ended it is named in `error_type`."""
        if user not in _ONLY_USER:
            raise ValueError(f"a sandbox of Ludus has one user: leave out user={user!r}")
        opened = _opened(handle)
        folder = _joined(opened.workdir, cwd)
        program = Program(
            tuple(script(RUN, command)),
            timeout=self._default_timeout_s if timeout_s is None else timeout_s,
            cwd=folder,
            env={"PWD": folder, **checked_variables(env)},  # a shell shows the path that was named, not its links
            output_bytes=OUTPUT_BYTES,
        )
        try:
            run = run_in_turns(opened.sandbox, program) if self.concurrent else opened.sandbox.run(program)
            return _result(await run)
        except SandboxError as error:
            raise RuntimeError(f"the sandbox failed, not the command: {error.cause}") from error

    async def upload_file(self, handle: SandboxHandle, source_path: Path, target_path: str) -> None:
        """Copy a file. It stays executable."""
        opened, source = _opened(handle), Path(source_path)
        data = await asyncio.to_thread(source.read_bytes)
        path = posixpath.join(opened.workdir, target_path)
        await opened.sandbox.write(path, data, executable=os.access(source, os.X_OK))

    async def download_file(self, handle: SandboxHandle, source_path: str, target_path: Path) -> None:
        """Copy a regular file."""
        opened, target = _opened(handle), Path(target_path)
        data = await opened.sandbox.read(posixpath.join(opened.workdir, source_path), _FILE_BYTES)
        await asyncio.to_thread(_write, target, data)

    async def status(self, handle: SandboxHandle) -> SandboxStatus:
        """Running until it is closed."""
        opened: _Opened | None = handle.raw
        return SandboxStatus.RUNNING if opened is not None and opened.open else SandboxStatus.STOPPED

    async def endpoint(self, handle: SandboxHandle, port: int) -> SandboxEndpoint:
        """A port of the host, where the sandbox shares its network."""
        if not self._network:
            raise RuntimeError("a sandbox of Ludus has no network, so no port of it can be reached: set network: true")
        return SandboxEndpoint(f"http://127.0.0.1:{int(port)}")

    async def close(self, handle: SandboxHandle) -> None:
        """End every process and remove every file."""
        opened: _Opened | None = handle.raw
        if opened is not None and opened.open:
            await opened.sandbox.close()
            opened.open = False

    async def aclose(self) -> None:
        """Close the provider with every sandbox that is still open: they cannot outlive it."""
        provider, self._provider = self._provider, None
        if provider is not None:
            await provider.close()

    async def _provider_for(self, spec: SandboxSpec) -> LudusSandboxProvider:
        async with self._opening:
            if self._provider is None:
                self._provider = await open_provider(
                    self._provider_name, image=spec.image is not None, urls=self._urls, warm=1
                )
            return self._provider

    def _spec(self, spec: SandboxSpec) -> LudusSpec:
        wanted = resources_of(spec)
        image = self._images.get(spec.image, spec.image) if spec.image is not None else None
        limits = SandboxLimits(
            memory_mb=wanted.memory_mib or self._memory_mib,
            disk_mb=wanted.disk_gib * 1024 if wanted.disk_gib else self._disk_mib,
            processes=self._processes,
            open_files=1024,
        )
        variables = checked_variables(spec.env)
        folders = () if image is not None else _root_folders([spec.workdir or "", *spec.files])
        return LudusSpec(
            image, limits, env=variables, folders=folders, background=True, unix_sockets=True, network=self._network
        )

    def _why(self, error: Exception) -> str:
        if isinstance(error, TimeoutError):
            return f"sandbox provider {self.name}: the sandbox did not open in time"
        words = error.cause if isinstance(error, SandboxError) else " ".join(str(error).split())
        instead = f". Or {INSTEAD}" if self.name != "ludus" else ""
        if "no container engine answers" in words:
            instead += ". Name a folder or a tar archive for it in the setting images"
        named = words if self.name in words else f"sandbox provider {self.name}: {words}"
        return f"{named}{instead}"


def _root_folders(paths: Sequence[str]) -> tuple[str, ...]:
    """The folders at the root that absolute paths lie in and that the system does not have."""
    first = {path.split("/")[1] for path in map(posixpath.normpath, paths) if path.startswith("/") and path != "/"}
    return tuple(sorted(first - _SYSTEM - {place.split("/")[1] for place in python_prefix()}))


def _joined(folder: str, path: str | None) -> str:
    return posixpath.join(folder, path or "").rstrip("/") or "/"


def _result(result: ExecResult) -> SandboxExecResult:
    stdout, stderr = (data.decode(errors="replace") for data in (result.stdout, result.stderr))
    code = result.exit_code if result.exit_code is not None else 128 + (result.signal or 9)
    if result.timed_out:
        return SandboxExecResult(stdout, stderr, TIMEOUT_CODE, TIMEOUT)
    error = "out_of_memory" if result.out_of_memory else f"{result.limit}_limit" if result.limit else None
    return SandboxExecResult(stdout, stderr, code or 137 if error else code, error)


def _opened(handle: SandboxHandle) -> _Opened:
    opened: Any = handle.raw
    if not isinstance(opened, _Opened) or not opened.open:
        raise RuntimeError(f"sandbox {handle.sandbox_id} is closed")
    return opened


def _write(target: Path, data: bytes) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(data)
