"""The types of a server's configuration and of its metrics.

Unknown keys of a server's block are ignored, because a configuration file may hold settings of other versions.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

from omegaconf import OmegaConf
from pydantic import BaseModel, ConfigDict, Field

__all__ = [
    "ROLLOUT_PATH_PREFIX",
    "TOKEN_CAPTURE_PATH_SEGMENT",
    "AgentCompositionError",
    "AgentServerRef",
    "AgentWithoutEnvironmentServerError",
    "AggregateMetrics",
    "AggregateMetricsRequest",
    "AmbiguousAgentRenameError",
    "AmbiguousEnvironmentServerError",
    "BaseRunServerConfig",
    "BaseRunServerInstanceConfig",
    "BaseServerConfig",
    "ConfigError",
    "DatasetConfig",
    "Domain",
    "EnvironmentServerRef",
    "ModelServerRef",
    "OmegaConf",
    "ResourcesServerRef",
    "UnsupportedAgentOverrideError",
    "UnsupportedAgentPairingError",
    "UnsupportedModelPairingError",
]

#: The first segment of a path that carries a rollout's id: `/ng-rollout/ID/...`.
ROLLOUT_PATH_PREFIX = "ng-rollout"
#: The segment after the id that asks a model server to capture token ids.
TOKEN_CAPTURE_PATH_SEGMENT = "training-token-capture"


class ModelServerRef(BaseModel):
    """Names a model server."""

    type: Literal["responses_api_models"]
    name: str


class ResourcesServerRef(BaseModel):
    """Names a resources server."""

    type: Literal["resources_servers"]
    name: str


class AgentServerRef(BaseModel):
    """Names an agent."""

    type: Literal["responses_api_agents"]
    name: str


class EnvironmentServerRef(BaseModel):
    """Names an environment server, which stands between the collector and an agent."""

    type: Literal["environment_servers"]
    name: str


class Domain(StrEnum):
    """The subject of an environment."""

    MATH = "math"
    CODING = "coding"
    AGENT = "agent"
    KNOWLEDGE = "knowledge"
    INSTRUCTION_FOLLOWING = "instruction_following"
    LONG_CONTEXT = "long_context"
    SAFETY = "safety"
    GAMES = "games"
    TRANSLATION = "translation"
    E2E = "e2e"
    RLHF = "rlhf"
    OTHER = "other"


class BaseServerConfig(BaseModel):
    """The address of a server, and the number of its processes."""

    host: str
    port: int
    num_workers: int | None = None


class BaseRunServerConfig(BaseServerConfig):
    """A server that runs a file."""

    entrypoint: str
    domain: Domain | None = None


class BaseRunServerInstanceConfig(BaseRunServerConfig):
    """A server with its name, the top-level key of the configuration."""

    name: str


class DatasetConfig(BaseModel):
    """A dataset of an agent. Keys without a field here are kept."""

    model_config = ConfigDict(extra="allow")

    name: str
    type: Literal["train", "validation", "example", "benchmark"]
    jsonl_fpath: str
    num_repeats: int = Field(default=1, ge=1)
    license: str | None = None
    taskset: str | None = None
    agent: str | None = None
    prepare_script: str | None = None
    prepare_dependencies: list[str] | None = None


class AggregateMetricsRequest(BaseModel):
    """The body of `/aggregate_metrics`: verified rollouts without their long fields."""

    verify_responses: list[dict[str, Any]]


class AggregateMetrics(BaseModel):
    """Metrics for each task, for each repeat and for all rollouts, and the most important of the latter."""

    group_level_metrics: list[dict[str, Any]] = []
    repeat_level_metrics: list[dict[str, Any]] = []
    agent_metrics: dict[str, Any] = {}
    key_metrics: dict[str, Any] = {}
    perf_summary: dict[str, Any] | None = None


class ConfigError(Exception):
    """The configuration is wrong."""


class AgentWithoutEnvironmentServerError(ConfigError, ValueError):
    """No environment server fronts an agent."""


class AmbiguousEnvironmentServerError(ConfigError, ValueError):
    """Several environment servers front an agent."""


class AmbiguousAgentRenameError(ConfigError, ValueError):
    """An override renames an agent, and several agents could be meant."""


class AgentCompositionError(ConfigError, ValueError):
    """An agent cannot be composed with the other servers."""


class UnsupportedAgentPairingError(ConfigError, ValueError):
    """A resources server does not allow this type of agent."""


class UnsupportedModelPairingError(ConfigError, ValueError):
    """A resources server does not allow this type of model server."""


class UnsupportedAgentOverrideError(ConfigError, ValueError):
    """An override cannot be applied to this agent."""
