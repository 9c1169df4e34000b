"""Sandboxes as instances of Apptainer, through its command-line program. It needs no daemon and no root."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import shutil
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from nemo_gym.sandbox.providers._commands import Ended, run_command
from nemo_gym.sandbox.providers._files import mode_of, reading, writing
from nemo_gym.sandbox.providers._instead import missing_program, warn_unknown
from nemo_gym.sandbox.providers._shell import BACKGROUND, READ, RUN, WRITE, checked_variables, script
from nemo_gym.sandbox.providers.base import (
    SandboxCreateError,
    SandboxEndpoint,
    SandboxExecResult,
    SandboxHandle,
    SandboxSpec,
    SandboxStatus,
    resources_of,
)

log = logging.getLogger("nemo_gym.sandbox")

#: Seconds for apptainer's own work: a pull with its conversion, a copy, and everything else.
_START, _COPY, _WORK = 1800.0, 600.0, 120.0

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")
_ROOT = (None, "root", "0", 0)


class ApptainerProvider:
    """Starts an instance of an image and runs commands in it. Needs `apptainer`, or `singularity` by name.

    apptainer: {image_dir: /images, fakeroot: true}

    An image is a file (`.sif`), a folder, a URL such as `docker://NAME`, or a name of a registry. Names of files are
    also looked up in `image_dir`. What commands write lies in memory. Instances
    share the network of the host. CPU and memory are limited only with `enforce_limits`, which needs control groups.
    """

    name = "apptainer"

    def __init__(
        self,
        apptainer_binary: str = "apptainer",
        image_dir: str | Path | None = None,
        fakeroot: bool = True,
        nv: bool = False,
        binds: Sequence[str] = (),
        start_args: Sequence[str] = (),
        exec_args: Sequence[str] = (),
        enforce_limits: bool = False,
        default_timeout_s: float = 180,
        concurrency: int = 64,
        **settings: Any,
    ) -> None:
        self._binary = apptainer_binary
        self._image_dir = Path(image_dir).expanduser() if image_dir is not None else None
        self._fakeroot, self._nv, self._enforce_limits = fakeroot, nv, enforce_limits
        self._binds = [*map(str, binds)]
        self._start_args, self._exec_args = [*map(str, start_args)], [*map(str, exec_args)]
        self._default_timeout_s = default_timeout_s
        self._slots = asyncio.Semaphore(concurrency)
        warn_unknown(self.name, settings)

    def problem(self) -> str | None:
        """Why it cannot work on this machine, or None."""
        return None if shutil.which(self._binary) else missing_program(self.name, self._binary)

    async def create(self, spec: SandboxSpec) -> SandboxHandle:
        """Start an instance of the spec's image."""
        if spec.image is None:
            raise SandboxCreateError("sandbox provider apptainer: the spec names no image: set image")
        instance = f"nemo-gym-{uuid.uuid4().hex[:16]}"
        handle = SandboxHandle(instance, self.name, {"workdir": spec.workdir, "env": dict(spec.env)})
        try:
            ended = await self._apptainer(
                ["instance", "start", *self._start_options(spec), self._image(spec.image), instance],
                spec.ready_timeout_s or _START,
                env=_environment(spec.env),
            )
        except SandboxCreateError:
            raise
        except BaseException:
            await self._stop_late(handle)
            raise
        if ended.timed_out or ended.code != 0:
            await self._stop_late(handle)
            why = "timed out" if ended.timed_out else ended.last_line or f"exit code {ended.code}"
            raise SandboxCreateError(f"apptainer cannot start an instance of {spec.image}: {why}")
        if spec.workdir:
            await self._apptainer(self._inside(handle, script('mkdir -p -- "$1"', spec.workdir)), _WORK)
        if spec.entrypoint:
            command = self._inside(handle, script(BACKGROUND, *map(str, spec.entrypoint)), cwd=spec.workdir or "/")
            await self._apptainer(command, _WORK, env=_environment(spec.env), keep_background=True)
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
        """Run a command with the image's bash, else with its sh. At its deadline its process group is killed."""
        if user not in _ROOT:
            raise ValueError(f"sandbox provider apptainer has one user, the root of its image: not {user!r}")
        raw = handle.raw or {}
        folder = os.path.join(raw.get("workdir") or "/", cwd or "")
        async with self._slots:
            ended = await self._apptainer(
                self._inside(handle, script(RUN, command), cwd=folder),
                self._default_timeout_s if timeout_s is None else timeout_s,
                env=_environment({**(raw.get("env") or {}), **(env or {})}),
                keep_background=preserve_background_services,
            )
        return ended.result

    async def upload_file(self, handle: SandboxHandle, source_path: Path, target_path: str) -> None:
        """Copy a file, with its mode."""
        source = Path(source_path)
        with reading(source) as file:
            command = script(WRITE, self._path(handle, target_path), mode_of(source))
            ended = await self._apptainer(self._inside(handle, command), _COPY, stdin=file)
        if ended.code != 0:
            raise OSError(f"cannot upload {target_path} to {handle.sandbox_id}: {ended.last_line}")

    async def download_file(self, handle: SandboxHandle, source_path: str, target_path: Path) -> None:
        """Copy the content of a regular file."""
        with writing(Path(target_path)) as file:
            command = script(READ, self._path(handle, source_path))
            ended = await self._apptainer(self._inside(handle, command), _COPY, stdout=file)
            if ended.code != 0:
                kind = FileNotFoundError if ended.code == 44 else OSError
                raise kind(f"cannot download {source_path} from {handle.sandbox_id}: {ended.last_line}")

    async def status(self, handle: SandboxHandle) -> SandboxStatus:
        """Running while apptainer lists the instance."""
        ended = await self._apptainer(["instance", "list", "--json", handle.sandbox_id], _WORK)
        try:
            instances = json.loads(ended.stdout)["instances"] or []
        except (ValueError, KeyError, TypeError):
            return SandboxStatus.UNKNOWN
        known = any(instance.get("instance") == handle.sandbox_id for instance in instances)
        return SandboxStatus.RUNNING if known else SandboxStatus.STOPPED

    async def endpoint(self, handle: SandboxHandle, port: int) -> SandboxEndpoint:
        """A port of the host, whose network the instance shares."""
        return SandboxEndpoint(f"http://127.0.0.1:{int(port)}")

    async def serialize_handle(self, handle: SandboxHandle) -> dict[str, Any]:
        """The instance's name. Only processes of this user on this machine can connect to it."""
        return {"provider": self.name, "sandbox_id": handle.sandbox_id, **(handle.raw or {})}

    async def connect(self, descriptor: Mapping[str, Any]) -> SandboxHandle:
        """An instance that runs already."""
        instance = str(descriptor.get("sandbox_id"))
        if not _NAME.fullmatch(instance):
            raise SandboxCreateError(f"not the name of an instance: {instance!r:.100}")
        raw = {"workdir": descriptor.get("workdir"), "env": descriptor.get("env") or {}}
        handle = SandboxHandle(instance, self.name, raw)
        if await self.status(handle) is not SandboxStatus.RUNNING:
            raise SandboxCreateError(f"instance {instance} does not run")
        return handle

    async def close(self, handle: SandboxHandle) -> None:
        """Stop the instance with all its processes."""
        ended = await self._apptainer(["instance", "stop", "--timeout", "5", handle.sandbox_id], _WORK)
        if ended.code != 0 and "no instance found" not in ended.last_line.lower():
            raise RuntimeError(f"apptainer cannot stop {handle.sandbox_id}: {ended.last_line}")

    async def aclose(self) -> None:
        """Nothing: instances that are open stay until they are closed."""

    def _start_options(self, spec: SandboxSpec) -> list[str]:
        options = ["--containall", "--no-home", "--writable-tmpfs", *self._start_args]
        wanted = resources_of(spec)
        if self._fakeroot:
            options.append("--fakeroot")
        if self._nv or wanted.gpu:
            options.append("--nv")
        for bind in [*self._binds, *map(str, spec.provider_options.get("binds") or ())]:
            options += ["--bind", bind]
        if self._enforce_limits and wanted.cpu:
            options += ["--cpus", str(wanted.cpu)]
        if self._enforce_limits and wanted.memory_mib:
            options += ["--memory", f"{wanted.memory_mib}M"]
        return options

    def _image(self, image: str) -> str:
        """The image as apptainer names it: a path, or a URL."""
        places = [Path(image).expanduser()]
        if self._image_dir is not None:
            places += [self._image_dir / image, self._image_dir / f"{re.sub(r'[/:@]', '_', image)}.sif"]
        for place in places:
            if place.exists():
                return str(place.absolute())
        return image if "://" in image else f"docker://{image}"

    def _inside(self, handle: SandboxHandle, command: Sequence[str], *, cwd: str = "/") -> list[str]:
        options = ["--fakeroot"] if self._fakeroot else []
        return ["exec", "--pwd", cwd, *options, *self._exec_args, f"instance://{handle.sandbox_id}", *command]

    async def _apptainer(
        self, arguments: Sequence[str], timeout_s: float, *, env: Mapping[str, str] | None = None, **options: Any
    ) -> Ended:
        if (problem := self.problem()) is not None:
            raise SandboxCreateError(problem)
        return await run_command(
            [self._binary, *arguments], timeout_s=timeout_s, env=env if env is not None else _environment({}), **options
        )

    async def _stop_late(self, handle: SandboxHandle) -> None:
        """Stop an instance that apptainer may have started, also where we are cancelled."""
        try:
            await asyncio.shield(self.close(handle))
        except (RuntimeError, OSError) as error:
            log.warning("%s", error)

    def _path(self, handle: SandboxHandle, path: str) -> str:
        return os.path.normpath(os.path.join("/", (handle.raw or {}).get("workdir") or "/", path))


def _environment(env: Mapping[str, str] | None) -> dict[str, str]:
    """The environment of apptainer: it takes the variables of the inside from names with a prefix of its own."""
    return {**os.environ, **{f"APPTAINERENV_{name}": value for name, value in checked_variables(env).items()}}
