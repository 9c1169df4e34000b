"""Inspect's sandboxes, which are on the other end of the channel, whatever a task calls them: docker, local, k8s."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any, Literal, overload

import yaml
from inspect_ai.util import ExecResult, OutputLimitExceededError, SandboxEnvironment
from pydantic import BaseModel

from .channel import RequestRefused, WorkerChannel
from .private import replace_sandboxes, sample_active
from .samples import SampleFeed

#: Kinds of sandbox that tasks name, whose packages are rarely installed.
_KINDS = ["docker", "local", "podman", "k8s", "ec2", "proxmox", "modal", "daytona"]
_CONFIG_FILES = ["compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml", "Dockerfile"]
#: The exit status of a program that was killed, as shells tell it.
_KILLED = 137


class ChannelSandbox(SandboxEnvironment):
    """One sandbox on the other end."""

    channel: WorkerChannel
    feed: SampleFeed

    def __init__(self, box: int) -> None:
        super().__init__()
        self._box = box

    @classmethod
    async def sample_init(cls, task_name: str, config: Any, metadata: dict[str, str]) -> dict[str, SandboxEnvironment]:
        """Open the sandbox of a sample."""
        active = sample_active()
        job = cls.feed.job_of(active.sample.id, active.epoch) if active is not None else None
        services = services_of(config)
        opened = await cls.channel.ask(op="open", job=job.number if job else None, services=services)
        return {name: cls(box) for name, box in opened.items()}

    @classmethod
    async def sample_cleanup(
        cls, task_name: str, config: Any, environments: dict[str, SandboxEnvironment], interrupted: bool
    ) -> None:
        """Close the sandbox of a sample. What is left is closed with the rollout."""
        for box in environments.values():
            if isinstance(box, ChannelSandbox):
                cls.channel.note(op="close", box=box._box)

    @classmethod
    def config_files(cls) -> list[str]:
        """The files beside a task that describe its sandbox."""
        return _CONFIG_FILES

    @classmethod
    def default_concurrency(cls) -> int | None:
        """No limit: the other end has one."""
        return None

    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> BaseModel:
        """Any configuration."""
        return _Config.model_validate(config)

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,  # noqa: ASYNC109
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        """Run a program."""
        stdin = input.encode() if isinstance(input, str) else input or b""
        result = await self._ask(
            "exec", cmd=cmd, stdin=_text(stdin), cwd=cwd, env=env or {}, user=user, timeout=timeout
        )
        if result["timed_out"]:
            raise TimeoutError(f"the command took longer than {timeout} seconds")
        code = result["code"] if result["code"] is not None else _KILLED
        out, err = (_bytes(result[name]).decode(errors="replace") for name in ("stdout", "stderr"))
        return ExecResult(success=code == 0, returncode=code, stdout=out, stderr=err)

    async def write_file(self, file: str, contents: str | bytes) -> None:
        """Write a file."""
        data = contents.encode() if isinstance(contents, str) else contents
        await self._ask("write", file=file, data=_text(data))

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        """Read a file."""
        data = _bytes(await self._ask("read", file=file))
        return data.decode() if text else data

    async def _ask(self, op: str, **fields: Any) -> Any:
        answer = await self.channel.ask(op=op, box=self._box, **fields)
        if isinstance(answer, dict) and "raise" in answer:
            raise _ERRORS.get(answer["raise"], _other)(answer["text"])
        return answer


class _Config(BaseModel, extra="allow"):
    pass


def _too_large(text: str) -> Any:
    return OutputLimitExceededError(text, None)


def _other(text: str) -> Any:
    return RequestRefused(text)


_ERRORS: dict[str, Any] = {
    "FileNotFoundError": FileNotFoundError,
    "IsADirectoryError": IsADirectoryError,
    "PermissionError": PermissionError,
    "OSError": OSError,
    "TooLarge": _too_large,
}


def services_of(config: Any) -> dict[str, Any]:
    """The containers that a sandbox's configuration asks for, each with its image, build file and folder."""
    if config is None:
        return {"default": {}}
    if isinstance(config, BaseModel):
        content = config.model_dump(exclude_none=True)
        where = type(config).__name__
    else:
        path = Path(str(config))
        where = str(path)
        if path.name.endswith("Dockerfile") or path.suffix == ".Dockerfile":
            return {"default": {"build": where, "where": where}}
        content = yaml.safe_load(path.read_text("utf-8")) or {}
    services = content.get("services") if isinstance(content, dict) else None
    if not isinstance(services, dict) or not services:
        return {"default": {"where": where}}
    return {name: _service(service or {}, where) for name, service in services.items()}


def _service(service: dict[str, Any], where: str) -> dict[str, Any]:
    build = service.get("build")
    build = build.get("dockerfile") or build.get("context") if isinstance(build, dict) else build
    environment = service.get("environment") or {}
    if isinstance(environment, list):
        environment = dict(entry.partition("=")[::2] for entry in environment)
    return {
        "where": where,
        "image": service.get("image"),
        "build": build,
        "folder": service.get("working_dir"),
        "env": {str(key): str(value) for key, value in environment.items() if value is not None},
    }


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _bytes(text: str) -> bytes:
    return base64.b64decode(text)


def install_sandboxes(channel: WorkerChannel, feed: SampleFeed) -> None:
    """Make every sandbox of Inspect one of the other end's."""
    ChannelSandbox.channel, ChannelSandbox.feed = channel, feed
    replace_sandboxes(ChannelSandbox, _KINDS)
