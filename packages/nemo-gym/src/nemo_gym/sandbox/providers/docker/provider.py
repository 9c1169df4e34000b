"""Sandboxes as containers of Docker, through its command-line program."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shutil
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nemo_gym.sandbox.providers._commands import Ended, run_command
from nemo_gym.sandbox.providers._files import absolute, writing
from nemo_gym.sandbox.providers._instead import missing_program, warn_unknown
from nemo_gym.sandbox.providers._shell import KILL_MARKED, MAKE_PARENT, READ, RUN, script
from nemo_gym.sandbox.providers.base import (
    SandboxCreateError,
    SandboxEndpoint,
    SandboxExecResult,
    SandboxHandle,
    SandboxSpec,
    SandboxStatus,
)
from nemo_gym.sandbox.providers.docker.config import DockerCreateConfig, run_arguments, variable_arguments

log = logging.getLogger("nemo_gym.sandbox")

#: Seconds for docker's own work: a pull, a copy, and everything else.
_START, _COPY, _WORK = 1200.0, 600.0, 120.0

_STATES = {
    "created": SandboxStatus.STARTING,
    "restarting": SandboxStatus.STARTING,
    "running": SandboxStatus.RUNNING,
    "paused": SandboxStatus.PAUSED,
    "removing": SandboxStatus.STOPPED,
    "exited": SandboxStatus.STOPPED,
    "dead": SandboxStatus.ERROR,
}
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_GONE = re.compile(r"no such (container|object)|not found", re.IGNORECASE)


class DockerProvider:
    """Makes containers with `docker run` and runs commands with `docker exec`. Needs `docker`, or `podman` by name.

    docker: {create: {network: none}, concurrency: 32}

    A command is one argument of the shell inside. At its deadline all processes that it started are killed.
    """

    name = "docker"

    def __init__(
        self,
        create: DockerCreateConfig | Mapping[str, Any] | None = None,
        docker_binary: str = "docker",
        default_timeout_s: float = 180,
        concurrency: int = 64,
        **settings: Any,
    ) -> None:
        self._config = (
            create if isinstance(create, DockerCreateConfig) else DockerCreateConfig.model_validate(create or {})
        )
        self._binary = docker_binary
        self._default_timeout_s = default_timeout_s
        self._slots = asyncio.Semaphore(concurrency)
        warn_unknown(self.name, settings)

    def problem(self) -> str | None:
        """Why it cannot work on this machine, or None."""
        return None if shutil.which(self._binary) else missing_program(self.name, self._binary)

    async def create(self, spec: SandboxSpec) -> SandboxHandle:
        """Start a container of the spec's image. It ends by itself after `ttl_s`, or a day."""
        if spec.image is None:
            raise SandboxCreateError("sandbox provider docker: the spec names no image: set image")
        container = f"nemo-gym-{uuid.uuid4().hex[:16]}"
        config = self._config.with_options(spec.provider_options)
        arguments, environment = run_arguments(spec, config, container)
        handle = SandboxHandle(container, self.name, {"workdir": spec.workdir})
        try:
            ended = await self._docker(arguments, spec.ready_timeout_s or _START, env=environment)
        except SandboxCreateError:
            raise
        except BaseException:
            await self._remove_late(handle)
            raise
        if ended.timed_out or ended.code != 0:
            await self._remove_late(handle)
            why = "timed out" if ended.timed_out else ended.last_line or f"exit code {ended.code}"
            raise SandboxCreateError(f"docker cannot start a container of {spec.image}: {why}")
        return handle

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
        """Run a command with the container's bash, else with its sh. What runs in the background stays."""
        mark = f"NEMO_GYM_EXEC={uuid.uuid4().hex}"
        variables, environment = variable_arguments(env)
        options = [*(("--workdir", cwd) if cwd else ()), *(("--user", str(user)) if user is not None else ())]
        arguments = [*options, *variables, "--env", mark, handle.sandbox_id, *script(RUN, command)]
        seconds = self._default_timeout_s if timeout_s is None else timeout_s
        try:
            async with self._slots:
                ended = await self._docker(["exec", *arguments], seconds, env=environment)
        except asyncio.CancelledError:
            await asyncio.shield(self._kill(handle, mark))
            raise
        if ended.timed_out:  # docker's own end does not end the command
            await self._kill(handle, mark)
        return ended.result

    async def upload_file(self, handle: SandboxHandle, source_path: Path, target_path: str) -> None:
        """Copy a file or a folder, with its mode."""
        source, target = absolute(Path(source_path)), self._inside(handle, target_path)
        prepare = ["exec", "--user", "0", handle.sandbox_id, *script(MAKE_PARENT, target)]
        for arguments in (prepare, ["cp", "--", source, f"{handle.sandbox_id}:{target}"]):
            ended = await self._docker(arguments, _COPY)
            if ended.code != 0:
                raise OSError(f"cannot upload {target} to {handle.sandbox_id}: {ended.last_line}")

    async def download_file(self, handle: SandboxHandle, source_path: str, target_path: Path) -> None:
        """Copy the content of a regular file. It is read inside, so that a link in it leads nowhere outside."""
        arguments = ["exec", "--user", "0", handle.sandbox_id, *script(READ, self._inside(handle, source_path))]
        with writing(Path(target_path)) as file:
            ended = await self._docker(arguments, _COPY, stdout=file)
            if ended.code != 0:
                kind = FileNotFoundError if ended.code == 44 else OSError
                raise kind(f"cannot download {source_path} from {handle.sandbox_id}: {ended.last_line}")

    async def status(self, handle: SandboxHandle) -> SandboxStatus:
        """The state that docker shows."""
        ended = await self._docker(["inspect", "--format", "{{.State.Status}}", handle.sandbox_id], _WORK)
        if ended.code != 0:
            return SandboxStatus.STOPPED if _GONE.search(ended.last_line) else SandboxStatus.UNKNOWN
        return _STATES.get(ended.stdout.decode(errors="replace").strip(), SandboxStatus.UNKNOWN)

    async def endpoint(self, handle: SandboxHandle, port: int) -> SandboxEndpoint:
        """Where docker published a port of the spec."""
        ended = await self._docker(["port", handle.sandbox_id, f"{int(port)}/tcp"], _WORK)
        address = ended.stdout.decode(errors="replace").strip().partition("\n")[0]
        if ended.code != 0 or not address:
            raise RuntimeError(f"port {port} of {handle.sandbox_id} is not published: list it in the spec's ports")
        return SandboxEndpoint(f"http://{address}")

    async def pause(self, handle: SandboxHandle) -> None:
        """Stop all processes of the container, and keep them."""
        await self._checked("pause", handle.sandbox_id)

    async def resume(self, handle: SandboxHandle) -> None:
        """Let a paused container go on."""
        await self._checked("unpause", handle.sandbox_id)

    async def create_network(self, name: str) -> str:
        """Make a network in which containers find each other by their aliases."""
        await self._checked("network", "create", name)
        return name

    async def remove_network(self, network: str) -> None:
        """Remove a network."""
        await self._checked("network", "rm", network)

    async def serialize_handle(self, handle: SandboxHandle) -> dict[str, Any]:
        """The container's name."""
        return {"provider": self.name, "sandbox_id": handle.sandbox_id, **(handle.raw or {})}

    async def connect(self, descriptor: Mapping[str, Any]) -> SandboxHandle:
        """A container that runs already."""
        container = str(descriptor.get("sandbox_id"))
        if not _NAME.fullmatch(container):
            raise SandboxCreateError(f"not the name of a container: {container!r:.100}")
        handle = SandboxHandle(container, self.name, {"workdir": descriptor.get("workdir")})
        if (state := await self.status(handle)) not in (SandboxStatus.RUNNING, SandboxStatus.PAUSED):
            raise SandboxCreateError(f"container {container} does not run: it is {state.value}")
        return handle

    async def close(self, handle: SandboxHandle) -> None:
        """Remove the container with everything in it."""
        ended = await self._docker(["rm", "--force", "--volumes", handle.sandbox_id], _WORK)
        if ended.code != 0 and not _GONE.search(ended.last_line):
            raise RuntimeError(f"docker cannot remove {handle.sandbox_id}: {ended.last_line}")

    async def aclose(self) -> None:
        """Nothing: containers that are open stay until they are closed or their life is over."""

    async def _docker(self, arguments: Sequence[str], timeout_s: float, **options: Any) -> Ended:
        if (problem := self.problem()) is not None:
            raise SandboxCreateError(problem)
        return await run_command([self._binary, *arguments], timeout_s=timeout_s, **options)

    async def _checked(self, *arguments: str) -> None:
        ended = await self._docker(arguments, _WORK)
        if ended.code != 0:
            raise RuntimeError(f"docker {' '.join(arguments)} failed: {ended.last_line}")

    async def _kill(self, handle: SandboxHandle, mark: str) -> None:
        """Kill what a command left inside."""
        arguments = ["exec", "--user", "0", handle.sandbox_id, *script(KILL_MARKED, mark)]
        if (ended := await self._docker(arguments, _WORK)).code != 0:
            log.warning("a command of %s was not stopped: %s", handle.sandbox_id, ended.last_line)

    async def _remove_late(self, handle: SandboxHandle) -> None:
        """Remove a container that docker may have made, also where we are cancelled."""
        try:
            await asyncio.shield(self.close(handle))
        except (RuntimeError, OSError) as error:
            log.warning("%s", error)

    def _inside(self, handle: SandboxHandle, path: str) -> str:
        """An absolute path in the container. Relative ones start in the working directory."""
        return os.path.normpath(os.path.join("/", (handle.raw or {}).get("workdir") or "/", path))
