"""Commands on the host itself, in a folder of their own. This is no sandbox: nothing is isolated."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nemo_gym.sandbox.providers._commands import kill_group, run_command
from nemo_gym.sandbox.providers.base import (
    SandboxCreateError,
    SandboxExecResult,
    SandboxHandle,
    SandboxSpec,
    SandboxStatus,
)

log = logging.getLogger("nemo_gym.sandbox")

#: Variables of this process that commands do not get: they hold keys.
_SECRET = re.compile(r"KEY|TOKEN|SECRET|PASSWORD|CREDENTIAL|NEMO_GYM_CONFIG_DICT", re.IGNORECASE)

#: A variable that marks the processes of a sandbox, so that `close` finds those in the background.
_MARK = "NEMO_GYM_LOCAL_SANDBOX"


@dataclass
class _Workspace:
    folder: Path
    temporary: bool
    env: dict[str, str]
    open: bool = True


class LocalProvider:
    """Runs commands on this machine, as you: code of a model can read and change all that you can.

    A command runs in the spec's `workdir`, or in a folder that is deleted at the end. Relative paths start there.
    Images, entrypoints, limits and ports of a spec have no effect, and `user` is refused. Commands get the variables of
    this process, except those whose names say that they hold keys. For code that you do not trust, use `{ludus: {}}`.
    """

    name = "local"

    def __init__(
        self,
        workspace_root: str | Path | None = None,
        shell: str = "/bin/bash",
        default_timeout_s: float = 180,
        concurrency: int = 8,
    ) -> None:
        self._workspace_root = Path(workspace_root).expanduser() if workspace_root is not None else None
        self._shell = shell
        self._default_timeout_s = default_timeout_s
        self._slots = asyncio.Semaphore(concurrency)

    async def create(self, spec: SandboxSpec) -> SandboxHandle:
        """Make the folder in which commands run."""
        if spec.image is not None:
            log.warning("sandbox provider local runs on the host: the image %s has no effect", spec.image)
        try:
            workspace = _Workspace(*self._folder(spec), env={str(key): str(value) for key, value in spec.env.items()})
        except OSError as error:
            raise SandboxCreateError(f"sandbox provider local: cannot make its folder: {error}") from error
        return SandboxHandle(f"local-{uuid.uuid4().hex[:12]}", self.name, workspace)

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
        """Run a command with the shell. Processes that it leaves are ended, unless they shall be preserved."""
        if user is not None:
            raise ValueError(f"sandbox provider local cannot become another user: leave out user={user!r}")
        workspace = self._open(handle)
        variables = {name: value for name, value in os.environ.items() if not _SECRET.search(name)}
        variables |= {**workspace.env, **(env or {}), _MARK: handle.sandbox_id}
        async with self._slots:
            ended = await run_command(
                [self._shell, "-c", command],
                timeout_s=self._default_timeout_s if timeout_s is None else timeout_s,
                cwd=workspace.folder / (cwd or ""),
                env=variables,
                keep_background=preserve_background_services,
            )
        return ended.result

    async def upload_file(self, handle: SandboxHandle, source_path: Path, target_path: str) -> None:
        """Copy a file or a folder."""
        await asyncio.to_thread(_copy, Path(source_path), self._open(handle).folder / target_path)

    async def download_file(self, handle: SandboxHandle, source_path: str, target_path: Path) -> None:
        """Copy a file or a folder."""
        await asyncio.to_thread(_copy, self._open(handle).folder / source_path, Path(target_path))

    async def status(self, handle: SandboxHandle) -> SandboxStatus:
        """Running until it is closed."""
        return SandboxStatus.RUNNING if handle.raw is not None and handle.raw.open else SandboxStatus.STOPPED

    async def close(self, handle: SandboxHandle) -> None:
        """End the processes that commands left in the background, and delete the folder if we made it."""
        workspace: _Workspace | None = handle.raw
        if workspace is None or not workspace.open:
            return
        await asyncio.to_thread(_end_marked, handle.sandbox_id)
        if workspace.temporary:
            await asyncio.to_thread(shutil.rmtree, workspace.folder, ignore_errors=True)
        workspace.open = False

    async def aclose(self) -> None:
        """Nothing: the provider itself holds nothing."""

    def _folder(self, spec: SandboxSpec) -> tuple[Path, bool]:
        if spec.workdir is not None:
            folder = Path(spec.workdir).expanduser()
            folder.mkdir(parents=True, exist_ok=True)
            return folder.resolve(), False
        if self._workspace_root is not None:
            self._workspace_root.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix="sandbox-", dir=self._workspace_root)).resolve(), True

    def _open(self, handle: SandboxHandle) -> _Workspace:
        workspace: Any = handle.raw
        if not isinstance(workspace, _Workspace) or not workspace.open:
            raise RuntimeError(f"sandbox {handle.sandbox_id} is closed")
        return workspace


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_dir():
        shutil.copytree(source, target, dirs_exist_ok=True)
    else:
        shutil.copy(source, target)


def _end_marked(sandbox_id: str) -> None:
    """Kill every process that inherited the mark of a sandbox."""
    mark = f"{_MARK}={sandbox_id}".encode()
    for entry in Path("/proc").glob("[0-9]*/environ"):
        try:
            if mark in entry.read_bytes().split(b"\0"):
                kill_group(os.getpgid(int(entry.parent.name)))
        except (OSError, ValueError):  # it has ended, or is not ours
            continue
