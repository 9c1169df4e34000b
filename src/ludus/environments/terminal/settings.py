"""What a `task.toml` says, as far as it has a meaning here: schema 1.4 of Harbor, older ones, and our table `[ludus]`.

docs/moving/harbor.md lists what is used, ignored and refused.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag, ValidationError, model_validator

from ludus import Failure

Seconds = Annotated[float, Field(gt=0, lt=86_400)]

_VARIABLE = re.compile(r"\$\{(\w+)(?::-([^}]*))?\}")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT])i?B?", re.IGNORECASE)
_MEGABYTES = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1 << 20}


class _Table(BaseModel):
    model_config = ConfigDict(extra="ignore", strict=True)


class _Reaching(_Table):
    network_mode: Literal["no-network", "public", "allowlist"] | None = None
    allowed_hosts: list[str] | None = None


class AgentTable(_Reaching):
    """`[agent]`: how long it may work, and as whom."""

    timeout_sec: Seconds | None = None
    user: str | int | None = None


class Healthcheck(_Table):
    """A command that tells when a box is ready."""

    command: str
    interval_sec: Annotated[float, Field(ge=0, lt=3600)] = 5.0
    timeout_sec: Seconds = 30.0
    start_period_sec: Annotated[float, Field(ge=0, lt=3600)] = 0.0
    start_interval_sec: Annotated[float, Field(ge=0, lt=3600)] = 5.0
    retries: Annotated[int, Field(ge=1, le=1000)] = 3

    @property
    def longest(self) -> float:
        """The most seconds until the box is ready, or is given up."""
        return self.start_period_sec + (self.retries + 1) * (self.timeout_sec + self.interval_sec)


class McpTable(_Table):
    """One of `[[environment.mcp_servers]]`: a server whose tools the agent has."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,40}$")]
    transport: Literal["stdio", "sse", "streamable-http", "http"] = "sse"
    url: str | None = None
    command: str | None = None
    args: list[str] = []
    headers: dict[str, str] = {}

    @model_validator(mode="after")
    def _complete(self) -> McpTable:
        key = "command" if self.transport == "stdio" else "url"
        if not getattr(self, key) or (self.command is not None and self.url is not None):
            raise ValueError(f"the transport {self.transport} needs {key} and nothing else")
        return self


class EnvironmentTable(_Reaching):
    """`[environment]`: the box."""

    build_timeout_sec: Seconds = 600.0
    docker_image: str | None = None
    os: Literal["linux"] = "linux"
    memory_mb: Annotated[int, Field(ge=16)] | None = None
    storage_mb: Annotated[int, Field(ge=1)] | None = None
    gpus: Annotated[int, Field(le=0)] | None = None
    tpu: None = None
    mcp_servers: list[McpTable] = []
    env: dict[str, str] = {}
    healthcheck: Healthcheck | None = None
    workdir: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _older(cls, table: Any) -> Any:
        """The names that sizes and the network had in older schemas: `memory = "2G"`, `allow_internet`."""
        if not isinstance(table, dict):
            return table
        table = dict(table)
        if isinstance(table.get("os"), str):
            table["os"] = table["os"].lower()
        for old, new in (("memory", "memory_mb"), ("storage", "storage_mb")):
            if (size := _SIZE.fullmatch(str(table.pop(old, "")))) is not None:
                table.setdefault(new, max(int(float(size[1]) * _MEGABYTES[size[2].upper()]), 1))
        if table.get("allow_internet") is False:
            table.setdefault("network_mode", "no-network")
        return table


class Artifact(_Table):
    """A file or folder of the agent's box that a separate verifier sees at the same place."""

    source: str
    exclude: list[str] = []
    service: Literal["main"] | None = None


#: An artifact as it is written: its path, or a table. An error then names the key of the table.
ArtifactEntry = Annotated[
    Annotated[str, Tag("path")] | Annotated[Artifact, Tag("table")],
    Discriminator(lambda entry: "path" if isinstance(entry, str) else "table"),
]


class Collect(_Table):
    """A command that runs in the agent's box before artifacts are taken."""

    command: str
    timeout_sec: Seconds = 60.0
    service: Literal["main"] = "main"
    user: str | int | None = None


class VerifierTable(_Reaching):
    """`[verifier]`: where and for how long the test script runs."""

    timeout_sec: Seconds = 600.0
    env: dict[str, str] = {}
    user: str | int | None = None
    environment_mode: Literal["shared", "separate"] | None = None
    environment: EnvironmentTable | None = None
    collect: list[Collect] = []

    @property
    def separate(self) -> bool:
        """Whether the verdict is in a box that the agent never saw."""
        return self.environment_mode == "separate" or (self.environment_mode is None and self.environment is not None)


class StepTable(_Table):
    """One of `[[steps]]`."""

    name: str
    agent: AgentTable = AgentTable()
    verifier: VerifierTable | None = None
    min_reward: float | int | dict[str, float | int] | None = None
    healthcheck: Healthcheck | None = None
    artifacts: list[ArtifactEntry] = []


class SolutionTable(_Table):
    """`[solution]`."""

    env: dict[str, str] = {}


class OwnTable(_Table):
    """`[ludus]`: what Harbor has no key for."""

    setup_hosts: list[str] = []
    agent_hosts: list[str] = []
    verify_hosts: list[str] = []
    background: bool = False
    verdict: Literal["fresh", "same_box"] = "fresh"


class TaskSettings(_Table):
    """A whole `task.toml`."""

    version: Any = ""
    agent: AgentTable = AgentTable()
    verifier: VerifierTable = VerifierTable()
    environment: EnvironmentTable = EnvironmentTable()
    solution: SolutionTable = SolutionTable()
    multi_step_reward_strategy: Literal["mean", "final"] | None = None
    steps: list[StepTable] | None = None
    artifacts: list[ArtifactEntry] = []
    ludus: OwnTable = OwnTable()

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> TaskSettings:
        """Read a `task.toml`. Raises `bad_row` with the key that is wrong, or that cannot be had here."""
        try:
            return cls.model_validate(dict(config))
        except ValidationError as error:
            first = error.errors()[0]
            key = ".".join(str(part) for part in first["loc"] if not str(part).startswith("_"))
            raise Failure("bad_row", f"task.toml: {key} {_problem(first)}") from error

    def seconds(self) -> dict[str, float]:
        """What the task's own times add up to, by the names of `Limits`: no deadline may pass before they are over."""
        steps = self.steps or []
        verifiers = [step.verifier or self.verifier for step in steps] or [self.verifier]
        boxes = [self.environment, *(table.environment for table in verifiers if table.environment is not None)]
        opening = sum(2 * table.build_timeout_sec for table in boxes) + 60
        checks = [self.environment.healthcheck, *(step.healthcheck for step in steps)]
        waiting = sum(check.longest for check in checks if check is not None)
        collecting = sum(command.timeout_sec for table in (self.verifier, *verifiers) for command in table.collect)
        # the script runs once for the verdict, and twice for its control
        judging = 3 * max(table.timeout_sec for table in verifiers) + 720 + waiting + collecting
        agents = [step.agent.timeout_sec or self.agent.timeout_sec for step in steps] or [self.agent.timeout_sec]
        playing = opening + waiting + sum(filter(None, agents)) + 2 * len(verifiers) * judging
        return {"open": opening + waiting, "tool": judging, "verify": judging, "rollout": playing}

    def hosts(self, phase: str, operator: Sequence[str], step: StepTable | None = None) -> list[str]:
        """The hosts that can be reached in a phase. With `public` these are all that the operator allows."""
        if own := getattr(self.ludus, f"{phase}_hosts"):
            return list(own)
        tables: list[_Reaching] = [self.environment]
        if phase == "agent":
            tables += [self.agent, *([step.agent] if step is not None else [])]
        elif phase == "verify":
            tables += [self.verifier.environment or self.environment, self.verifier]
            tables += [step.verifier] if step is not None and step.verifier is not None else []
        for table in reversed(tables):
            if table.network_mode == "allowlist":
                return list(table.allowed_hosts or [])
            if table.network_mode is not None:
                return list(operator) if table.network_mode == "public" else []
        return []


def paths_of(artifacts: Sequence[ArtifactEntry]) -> list[Artifact]:
    """Artifacts, each with its absolute path."""
    found = [Artifact(source=each) if isinstance(each, str) else each for each in artifacts]
    for artifact in found:
        if not artifact.source.startswith("/") or ".." in artifact.source.split("/") or "\0" in artifact.source:
            raise Failure("bad_row", f"task.toml: an artifact needs an absolute path: {artifact.source!r:.80}")
    return found


def filled(env: Mapping[str, str], allowed: Sequence[str]) -> dict[str, str]:
    """Variables with `${NAME}` and `${NAME:-default}` filled in from those of this machine that the operator allows."""

    def value(match: re.Match[str]) -> str:
        name, default = match[1], match[2]
        if name in allowed and name in os.environ:
            return os.environ[name]
        if default is None:
            hint = f"--set 'resources.host_env=[\"{name}\"]'"
            raise Failure(
                "bad_row", f"the task wants the variable {name} of this machine: set it, and allow it: {hint}"
            )
        return default

    return {name: _VARIABLE.sub(value, text) for name, text in env.items()}


def _problem(error: Any) -> str:
    """Why a key of task.toml cannot be used."""
    key = str(error["loc"][-1])
    wants = {
        "gpus": "asks for GPUs, which a sandbox has not: set 0 if the task runs without",
        "tpu": "asks for a TPU, which a sandbox has not: remove the table if the task runs without",
        "os": "must be linux: leave the task out",
        "service": "names a service of a compose file, and tasks have one box here",
    }
    value = f"{error['input']!r:.40}"
    if key == "timeout_sec":
        return f"must be a number of seconds, and is {value}"
    return wants.get(key) or f"is {value}: {error['msg']}"
