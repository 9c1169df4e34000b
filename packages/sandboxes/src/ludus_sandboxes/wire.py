"""Sandboxes over HTTP: how specs and results are written as JSON. Bytes are base64."""

from __future__ import annotations

from base64 import b64decode, b64encode
from dataclasses import asdict
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from ludus.sandbox.protocol import READ_BYTES, ExecResult, Program, SandboxLimits, SandboxSpec


class SpecMessage(BaseModel):
    """A spec as a client sends it. Unknown fields are refused, and numbers are bounded."""

    model_config = ConfigDict(extra="forbid")

    image: str | None = None
    limits: dict[str, Annotated[int, Field(ge=1, le=1 << 32)]] = {}
    env: dict[str, str] = {}
    files: dict[str, str] = {}
    folders: tuple[Annotated[str, Field(pattern=r"^\w[\w.-]*$")], ...] = ()
    packages: tuple[str, ...] = ()
    preload: tuple[str, ...] = ()
    background: bool = False
    unix_sockets: bool = False
    network: bool = False

    def spec(self) -> SandboxSpec:
        """The spec. Raises `TypeError` for an unknown limit."""
        fields = self.model_dump(exclude={"limits", "files"})
        files = {path: bytes_of(data) for path, data in self.files.items()}
        return SandboxSpec(limits=SandboxLimits(**self.limits), files=files, **fields)


class ExecMessage(BaseModel):
    """A program to run."""

    model_config = ConfigDict(extra="forbid")

    owner: str
    sandbox: str
    command: list[str] | str = ""
    source: str = ""
    argv: list[str] = []
    stdin: str = ""
    timeout: float = Field(default=30.0, gt=0, le=86_400)
    cwd: str | None = None
    env: dict[str, str] = {}
    last_bytes: int | None = Field(default=None, ge=1, le=READ_BYTES)

    def command_program(self) -> Program:
        """The program of a request `exec`. Raises `ValueError` for input that is not base64."""
        argv = ("/bin/sh", "-c", self.command) if isinstance(self.command, str) else tuple(self.command)
        keeps: dict[str, Any] = {"output_bytes": self.last_bytes, "keep_last": self.last_bytes is not None}
        return Program(argv, stdin=bytes_of(self.stdin), timeout=self.timeout, cwd=self.cwd, env=self.env, **keeps)

    def python_program(self) -> Program:
        """The program of a request `python`. Raises `ValueError` for input that is not base64."""
        return Program(tuple(self.argv), self.source, bytes_of(self.stdin), self.timeout)


class FileMessage(BaseModel):
    """A file to read or to write, or an archive."""

    model_config = ConfigDict(extra="forbid")

    owner: str
    sandbox: str
    path: str = ""
    data: str = ""
    executable: bool = False
    max_bytes: int = Field(default=16 << 20, ge=0, le=1 << 30)
    hosts: list[str] = []


def spec_message(spec: SandboxSpec) -> dict[str, Any]:
    """A spec as JSON. Mounts are not part of it: the folders are on another machine."""
    message = asdict(spec)
    del message["mounts"]
    return message | {"files": {path: text_of(data) for path, data in spec.files.items()}}


def program_message(program: Program) -> dict[str, Any]:
    """A program as JSON, for a request `exec` or `python`."""
    fields: dict[str, Any] = {"stdin": text_of(program.stdin), "timeout": program.timeout}
    if program.source is None:
        keeps = {"last_bytes": program.output_bytes} if program.keep_last else {}
        return fields | {"command": program.argv, "cwd": program.cwd, "env": dict(program.env), **keeps}
    source = program.source.encode(errors="replace").decode()  # a lone surrogate is not JSON
    return fields | {"source": source, "argv": program.argv}


def result_message(result: ExecResult) -> dict[str, Any]:
    """A result as JSON."""
    return asdict(result) | {"stdout": text_of(result.stdout), "stderr": text_of(result.stderr)}


def result_of(message: dict[str, Any]) -> ExecResult:
    """A result from JSON."""
    fields = {**message, "stdout": bytes_of(message["stdout"]), "stderr": bytes_of(message["stderr"])}
    return ExecResult(**fields)


def bytes_of(text: str) -> bytes:
    """The bytes of a text that a client sent. Raises `ValueError` for anything but base64."""
    return b64decode(text, validate=True)


def text_of(data: bytes) -> str:
    """Bytes as text."""
    return b64encode(data).decode()
