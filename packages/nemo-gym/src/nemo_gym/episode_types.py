"""Who an episode is, what it plays, and how it ends: the messages between the collector and environment servers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Generic, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from nemo_gym.failure_kinds import FailureStage, validate_failure_kind

T = TypeVar("T")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_ATTEMPT = re.compile(r"-a0*[1-9][0-9]*\Z")


def plain_name(name: str) -> str:
    """A name of letters, digits, `.`, `_` and `-` that starts with a letter or a digit; `ValueError` otherwise."""
    if _NAME.fullmatch(name) is None:
        raise ValueError(f"{name!r} must start with a letter or digit and hold only letters, digits, '.', '_' and '-'")
    return name


def _rollout_id(name: str) -> str:
    if _ATTEMPT.search(name):
        raise ValueError(f"{name!r} ends like the capture key of an attempt: pass the number as `attempt`")
    return plain_name(name)


class EpisodeId(BaseModel):
    """A rollout and the number of its attempt."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rollout_id: Annotated[str, AfterValidator(_rollout_id)]
    attempt: int = Field(default=0, ge=0)

    @property
    def capture_key(self) -> str:
        """The id under which the model calls of this attempt are captured."""
        return f"{self.rollout_id}-a{self.attempt}" if self.attempt else self.rollout_id


class TaskId(BaseModel):
    """A task of a taskset."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    taskset: str = Field(min_length=1)
    task_id: str = Field(min_length=1)


class EpisodeFailure(BaseModel):
    """Why an episode has no result, and whether another attempt is useless (`terminal`)."""

    model_config = ConfigDict(extra="forbid")

    failure_reason: str = Field(max_length=2000)
    terminal: bool
    failure_kind: Annotated[str | None, AfterValidator(validate_failure_kind)] = None
    stage: FailureStage | None = None

    @model_serializer(mode="wrap")
    def _without_unknown(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = handler(self)
        return {
            key: value for key, value in fields.items() if value is not None or key not in ("failure_kind", "stage")
        }


class MaterializedTask(BaseModel, Generic[T]):
    """A task and the input of its episode."""

    model_config = ConfigDict(extra="forbid")

    task_id: TaskId
    task_input: T


class BaseEpisodeRequest(BaseModel, Generic[T]):
    """The request for an episode."""

    model_config = ConfigDict(extra="forbid")

    episode_id: EpisodeId
    task: MaterializedTask[T]


class BaseEpisodeResponse(BaseModel, Generic[T]):
    """The end of an episode: its result or its failure."""

    model_config = ConfigDict(extra="forbid")

    episode_id: EpisodeId
    task_id: TaskId
    result: T | None = None
    failure: EpisodeFailure | None = None

    @model_validator(mode="after")
    def _has_one_end(self) -> BaseEpisodeResponse[T]:
        if (self.result is None) == (self.failure is None):
            raise ValueError("an episode has exactly one of result and failure")
        return self


def is_materialized_task_row(row: Mapping[str, Any]) -> bool:
    """Whether a row is `{task_id: {...}, task_input: ...}` and not a flat row."""
    return isinstance(row.get("task_id"), Mapping) and "task_input" in row
