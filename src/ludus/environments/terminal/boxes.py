"""The boxes of a task: which image they have, what they may reach, and how they become ready."""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
import posixpath
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import yaml

from ludus import Failure, UserError
from ludus.environments.terminal.places import READ_FROM
from ludus.environments.terminal.settings import EnvironmentTable, Healthcheck, filled
from ludus.environments.terminal.users import User, identity
from ludus.graders.repository import CheckoutProvider
from ludus.graders.repository.images import checked_name
from ludus.graders.repository.trees import is_plain
from ludus.runtime.threads import in_thread
from ludus.sandbox import Sandbox, SandboxError, SandboxProvider, SandboxSpec
from ludus.sandbox.bases import Bases
from ludus.sandbox.building import ImageBuilder
from ludus.sandbox.dockerfile import ImageRecipe
from ludus.sandbox.oci_bundle import container_environment
from ludus.sandbox.oci_images import BUILT, ImageStore, UnpackedImage

#: The folders of Harbor's layout that a sandbox without an image has at its root; they lie in HOME.
FOLDERS = ("app", "tests", "logs", "solution")

#: Files of `environment/` that describe the machine and are not part of the working folder.
MACHINE = {"Dockerfile", "docker-compose.yaml", "docker-compose.yml", "setup.sh"}

#: What a box with an image may have at once: services and build tools start more processes than a script.
_PROCESSES, _MEMORY_MB, _DISK_MB = 256, 2048, 1024

Files = dict[str, Any]
_log = logging.getLogger("ludus")
_said: set[str] = set()


@dataclass(frozen=True)
class Box:
    """How boxes of one kind are opened."""

    provider: SandboxProvider
    spec: SandboxSpec
    workdir: str
    path: tuple[str, ...] = ()  #: the folders in which programs are looked for
    read: tuple[str, ...] = ()  #: files and folders that variables of the image name as code
    entrypoint: tuple[str, ...] = ()
    healthcheck: Healthcheck | None = None
    brought: Mapping[str, bytes] = field(default_factory=dict)  #: the task's files, where there is no image
    image: UnpackedImage | None = None
    env: Mapping[str, str] = field(default_factory=dict)  #: what the task sets for all programs

    @property
    def root(self) -> str:
        """Where `tests` and `logs` are: at the root of an image, else in HOME."""
        return "" if self.spec.image is None else "/"

    def as_user(self, user: User, key: str) -> dict[str, str]:
        """The variables of programs that a user of the image starts. A key of task.toml names the user."""
        return {**identity(user, self.image, key), **self.env}

    async def prepare(self, sandbox: Sandbox) -> None:
        """Start the image's own services and wait until they are ready."""
        if self.spec.image is not None:
            await sandbox.exec(["mkdir", "-p", self.workdir, "/logs/agent", "/logs/artifacts"])
        if self.entrypoint:
            script = '"$@" > /dev/null 2>&1 &'
            stay = ("sh", "-c", "while true; do sleep 3600; done")
            await sandbox.exec(["sh", "-c", script, "sh", *self.entrypoint, *stay], cwd=self.workdir)
        if self.healthcheck is not None:
            await wait_until_healthy(sandbox, self.healthcheck, self.workdir)


async def box_of(
    task: Any, table: EnvironmentTable, files: Files, config: Any, provider: SandboxProvider, folder: str
) -> Box:
    """The box that a table of `task.toml` and the files of a folder describe. Builds its image if it must."""
    env = filled(table.env, config.host_env)
    image, about = await _image(f"{task.task_name or 'task'}/{folder}", table, files, config)
    workdir = posixpath.normpath(table.workdir or (about.workdir if about is not None else "") or config.workdir)
    if not workdir.startswith("/"):
        raise Failure("bad_row", f"task.toml: environment.workdir must be an absolute path: {workdir:.80}")
    limits = config.sandbox.applied_to(SandboxSpec()).limits
    if image is None:
        spec = config.sandbox.applied_to(SandboxSpec(folders=FOLDERS, env=env))
        rest = {path: data for path, data in contents(files).items() if path not in MACHINE}
        without = CheckoutProvider(provider, rest, folder="app")
        return Box(without, spec, workdir, healthcheck=table.healthcheck, brought=rest, env=env)
    asked = replace(
        limits,
        processes=_PROCESSES,
        memory_mb=table.memory_mb or _MEMORY_MB,
        disk_mb=table.storage_mb or _DISK_MB,
        files=200_000,
        open_files=1024,
    )
    spec = replace(config.sandbox.applied_to(SandboxSpec(limits=asked, env=env)), image=image, background=True)
    variables = container_environment(spec, about.env if about is not None else {})
    path = tuple(variables["PATH"].split(":"))
    named = (
        posixpath.join(workdir, place) for name in READ_FROM for place in variables.get(name, "").split(":") if place
    )
    entrypoint = about.entrypoint if about is not None else ()
    read = tuple(map(posixpath.normpath, named))
    return Box(provider, spec, workdir, path, read, entrypoint, table.healthcheck, image=about, env=env)


async def _image(
    place: str, table: EnvironmentTable, files: Files, config: Any
) -> tuple[str | None, UnpackedImage | None]:
    """The image of a box and what it says about itself; None for a box without an image."""
    provider, setting = config.sandbox.provider, config.sandbox.image
    own = table.docker_image or ("the task's Dockerfile" if "Dockerfile" in files else None)
    if setting is not None:
        if own is not None and own not in _said:
            _said.add(own)
            _log.warning("resources.sandbox.image=%s is used in place of %s", setting, own)
        image = str(setting)
    elif table.docker_image:
        image = checked_name(table.docker_image, provider)
    elif "Dockerfile" not in files or files.get("setup.sh"):
        _refuse_services(place, files)
        return None, None
    else:
        _refuse_services(place, files)
        image = await _built(place, table, files, config)
    local = provider in ("auto", "oci")
    try:
        return image, await ImageStore().get(image) if local else None
    except SandboxError as error:
        hint = f"get it with: docker pull {image}" if image == table.docker_image else "check resources.sandbox.image"
        raise Failure("bad_row", f"the task's image {image:.120} cannot be used: {error.cause}; {hint}") from error


async def _built(place: str, table: EnvironmentTable, files: Files, config: Any) -> str:
    provider = config.sandbox.provider
    if provider not in ("auto", "oci"):
        hint = "leave resources.sandbox.provider out, or name a built image with resources.sandbox.image"
        raise Failure("bad_row", f"the task has a Dockerfile, and {provider} has no images that are built here: {hint}")
    recipe = ImageRecipe(
        contents(files)["Dockerfile"].decode(errors="replace"),
        {path: data for path, data in contents(files).items() if path not in MACHINE - {"setup.sh"}},
        frozenset(path for path, content in files.items() if isinstance(content, dict) and content.get("executable")),
        place=f"{place}/Dockerfile",
        network=config.build_network,
        seconds=table.build_timeout_sec,
    )
    try:
        name: str = await in_thread(ImageBuilder(Bases(config.bases)).build, recipe)
    except (UserError, SandboxError) as error:
        raise Failure("bad_row", " ".join(str(error).split())) from error
    assert name.startswith(BUILT)
    return name


def _refuse_services(place: str, files: Files) -> None:
    """Refuse a compose file of several services: a task has one box here."""
    name = next((name for name in ("docker-compose.yaml", "docker-compose.yml") if name in files), None)
    if name is None:
        return
    place = f"{place}/{name}"
    try:
        services = dict((yaml.safe_load(contents(files)[name]) or {}).get("services") or {})
    except (yaml.YAMLError, AttributeError, TypeError, ValueError) as error:
        raise Failure("bad_row", f"{place} cannot be read: {str(error).splitlines()[0]:.120}") from error
    if len(services) > 1 or "Dockerfile" not in files:
        what = f"{place} has the services {', '.join(map(str, services)):.120}"
        raise Failure("bad_row", f"{what}, and a task has one box here: put them into one Dockerfile")


async def wait_until_healthy(sandbox: Sandbox, check: Healthcheck, workdir: str) -> None:
    """Wait until a command ends with 0. Failures of the start period do not count."""
    started, failures = time.monotonic(), 0
    while True:
        ended = await sandbox.exec(["sh", "-c", check.command], timeout=check.timeout_sec, cwd=workdir)
        if ended.ok:
            return
        starting = time.monotonic() - started < check.start_period_sec
        failures += not starting
        if failures >= check.retries:
            words = ended.last_line or ended.why
            raise Failure("bad_row", f"the task's health check failed: {check.command:.100}: {words:.200}")
        await asyncio.sleep(check.start_interval_sec if starting else check.interval_sec)


@asynccontextmanager
async def reaching(sandbox: Sandbox, hosts: Sequence[str]) -> AsyncIterator[None]:
    """Let programs reach some hosts for a while."""
    if hosts:
        await sandbox.allow_hosts(hosts)
    try:
        yield
    finally:
        if hosts:
            await sandbox.deny_hosts()


async def write_files(sandbox: Sandbox, files: Mapping[str, bytes], folder: str) -> None:
    """Write files into a folder of a box with an image."""
    for path, data in files.items():
        await sandbox.write(posixpath.join(folder, path), data, executable=path.endswith(".sh"))


def contents(files: Files) -> dict[str, bytes]:
    """The files of a row as bytes. A path that leads elsewhere is a bad row."""
    by_path = {}
    for path, content in files.items():
        if not is_plain(path):
            raise Failure("bad_row", f"a file of the task has a path that is not allowed: {path!r:.80}")
        try:
            if isinstance(content, dict) and "text" in content:
                content = content["text"]
            encoded = content["base64"] if isinstance(content, dict) else None
            by_path[path] = content.encode() if encoded is None else base64.b64decode(encoded, validate=True)
        except (AttributeError, KeyError, TypeError, binascii.Error, UnicodeEncodeError) as error:
            raise Failure("bad_row", f"the task's file {path:.80} is neither a text nor base64") from error
    return by_path
