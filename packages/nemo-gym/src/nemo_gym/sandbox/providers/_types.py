"""What a sandbox is made of and what its calls return: plain data, which every provider shares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any
from urllib.parse import urlsplit


class SandboxCreateError(RuntimeError):
    """A sandbox could not be created: no program of the task is to blame."""


class SandboxStatus(StrEnum):
    """The state of a sandbox."""

    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"
    ERROR = "error"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class SandboxResources:
    """The resources that a sandbox asks for. None leaves the choice to the provider."""

    cpu: float | None = None
    memory_mib: int | None = None
    disk_gib: int | None = None
    gpu: int | None = None
    gpu_type: str | None = None

    @classmethod
    def from_mapping(cls, m: Mapping[str, Any] | None) -> SandboxResources:
        """The resources of a mapping. An unknown key is a `ValueError`."""
        values = dict(m or {})
        known = [field.name for field in fields(cls)]
        if unknown := sorted(map(str, values.keys() - set(known))):
            raise ValueError(f"unknown sandbox resources: {', '.join(unknown)}. Known: {', '.join(known)}")
        return cls(**values)

    def __getitem__(self, name: str) -> Any:
        """A resource by its name: a spec may be made of a mapping, and authors read it as one."""
        return vars(self)[name]

    def get(self, name: str, default: Any = None) -> Any:
        """A resource by its name; `default` if the spec leaves it to the provider."""
        value = getattr(self, name, None)
        return default if value is None else value

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Mapping):
            return {name: value for name, value in vars(self).items() if value is not None} == dict(other)
        return vars(self) == vars(other) if isinstance(other, SandboxResources) else NotImplemented


@dataclass(frozen=True)
class SandboxSpec:
    """A sandbox that a provider shall make."""

    image: str | None = None
    ttl_s: float | None = None  #: seconds after which the provider may end it
    ready_timeout_s: float | None = None
    workdir: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)  #: texts by path, uploaded when the sandbox has started
    metadata: Mapping[str, Any] = field(default_factory=dict)
    resources: SandboxResources | Mapping[str, Any] = field(default_factory=SandboxResources)
    entrypoint: Sequence[str] | None = None
    provider_options: Mapping[str, Any] = field(default_factory=dict)
    ports: tuple[int, ...] = ()  #: ports inside that `endpoint` makes reachable

    def __post_init__(self) -> None:
        object.__setattr__(self, "resources", resources_of(self))
        ports = tuple(self.ports or ())
        wrong = [port for port in ports if isinstance(port, bool) or not isinstance(port, int) or not 0 < port < 65536]
        if wrong:
            raise ValueError(f"not a port (1 to 65535): {wrong[0]!r}")
        if len(set(ports)) < len(ports):
            raise ValueError(f"a port is listed twice: {', '.join(map(str, ports))}")
        object.__setattr__(self, "ports", ports)


def resources_of(spec: SandboxSpec) -> SandboxResources:
    """The resources of a spec, whether it was given a mapping or an object."""
    wanted = spec.resources
    return wanted if isinstance(wanted, SandboxResources) else SandboxResources.from_mapping(wanted)


@dataclass(frozen=True)
class SandboxExecResult:
    """How a command ended. `error_type` is set where something else than the command ended it, such as `timeout`."""

    stdout: str | None
    stderr: str | None
    return_code: int
    error_type: str | None = None


@dataclass
class SandboxHandle:
    """A sandbox as its provider knows it."""

    sandbox_id: str
    provider_name: str
    raw: Any = None


@dataclass(frozen=True)
class SandboxEndpoint:
    """Where a port of a sandbox is reached: an absolute URL, and the headers that requests must have."""

    endpoint: str
    headers: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        parts = urlsplit(self.endpoint)
        if not parts.scheme or not parts.netloc:
            raise ValueError(f"not an absolute URL: {self.endpoint!r}")
