"""What an agent saw of its own rollout: invocations, tool calls, compactions, sandboxes, and what it could not see.

Evidence that is missing is named by an `ObservationGap`, never guessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from nemo_gym._responses import field_of
from nemo_gym.config_types import ModelServerRef
from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseInputItem

__all__ = [
    "AgentEpisode",
    "AgentInvocation",
    "AgentObservationBundle",
    "AgentObservationRecord",
    "ContextCompactionObservation",
    "ModelCallRef",
    "ObservationGap",
    "SandboxObservation",
    "ToolCallObservation",
    "TrajectoryModelCall",
    "TrajectoryRecord",
    "TrajectoryToolCall",
    "TrajectoryTurn",
    "join_model_call_observations",
]

#: A moment: a date with its time (also as ISO text), or seconds since 1970.
Moment = datetime | float


class _Observed(BaseModel):
    model_config = ConfigDict(extra="forbid", validate_assignment=True)


class ModelCallRef(_Observed):
    """Names a model call: by the id of its capture, or by a model server and the id of its response."""

    model_call_id: str | None = None
    model_ref: ModelServerRef | None = None
    response_id: str | None = None

    @model_validator(mode="after")
    def _names_one_call(self) -> ModelCallRef:
        if self.model_call_id is None and (self.model_ref is None or self.response_id is None):
            raise ValueError("a model call needs model_call_id, or both model_ref and response_id")
        return self


class AgentInvocation(_Observed):
    """One run of an agent or of a sub-agent."""

    kind: Literal["agent_invocation"] = "agent_invocation"
    invocation_id: str
    parent_invocation_id: str | None = None
    spawned_by_tool_call_id: str | None = None
    status: Literal["completed", "failed", "incomplete", "unknown"] = "unknown"
    duration_ms: float | None = None
    error_type: str | None = None
    model_calls: list[ModelCallRef] = Field(default_factory=list)
    conversation: list[NeMoGymResponseInputItem] = Field(default_factory=list)


class ToolCallObservation(_Observed):
    """One tool call, and who measured its time."""

    kind: Literal["tool_call"] = "tool_call"
    invocation_id: str | None = None
    tool_call_id: str | None = None
    sandbox_id: str | None = None
    tool_name: str | None = None
    started_at: Moment | None = None
    completed_at: Moment | None = None
    duration_ms: float | None = None
    timing_source: Literal["executor", "artifact", "harness"] | None = None
    status: Literal["completed", "failed", "timeout", "cancelled", "incomplete", "unknown"] = "unknown"
    error_type: str | None = None

    @model_validator(mode="after")
    def _ends_after_its_start(self) -> ToolCallObservation:
        start, end = self.started_at, self.completed_at
        if start is not None and end is not None and _seconds(end) < _seconds(start):
            raise ValueError(f"completed_at {end} is before started_at {start}")
        return self


class ContextCompactionObservation(_Observed):
    """A conversation that the agent shortened."""

    kind: Literal["context_compaction"] = "context_compaction"
    invocation_id: str | None = None
    observed_at: Moment | None = None
    trigger: str | None = None
    tokens_before: int | None = None
    tokens_after: int | None = None
    outcome: Literal["completed", "failed", "aborted", "unknown"] = "unknown"
    summary: str | None = None
    first_kept_item_id: str | None = None
    before_model_call: ModelCallRef | None = None
    model_calls: list[ModelCallRef] = Field(default_factory=list)
    after_model_call: ModelCallRef | None = None


class SandboxObservation(_Observed):
    """A sandbox of the rollout: how it ended and what it used."""

    kind: Literal["sandbox"] = "sandbox"
    role: str | None = None
    provider: str | None = None
    sandbox_id: str | None = None
    outcome: str | None = None
    exit_code: int | None = None
    wall_time_s: float | None = None
    cpu_time_s: float | None = None
    peak_memory_mib: float | None = None
    resource_usage_source: str | None = None
    error_type: str | None = None


class ObservationGap(_Observed):
    """Evidence that is missing, by a code."""

    code: str
    invocation_id: str | None = None
    detail: Any = None


AgentObservationRecord = Annotated[
    AgentInvocation | ToolCallObservation | ContextCompactionObservation | SandboxObservation,
    Field(discriminator="kind"),
]


class AgentObservationBundle(_Observed):
    """Everything that one source saw of a rollout. Invocation ids are unique, and no invocation is its own ancestor."""

    source: str
    records: list[AgentObservationRecord] = Field(default_factory=list)
    gaps: list[ObservationGap] = Field(default_factory=list)

    @property
    def invocations(self) -> list[AgentInvocation]:
        """The runs of agents among the records."""
        return [record for record in self.records if isinstance(record, AgentInvocation)]

    @model_validator(mode="after")
    def _invocations_form_trees(self) -> AgentObservationBundle:
        check_invocations(self.invocations)
        return self


@dataclass(frozen=True)
class AgentEpisode:
    """A response with what its agent observed."""

    response: NeMoGymResponse
    observations: AgentObservationBundle


class _Part(BaseModel):
    """A part of a trajectory. Fields without a declaration are kept."""

    model_config = ConfigDict(extra="allow", validate_assignment=True)


class TrajectoryTurn(_Part):
    """One turn of an invocation: a model call and the tool calls that it asked for."""

    invocation_id: str | None = None
    turn_index: int | None = None
    model_call: ModelCallRef | None = None
    tool_call_ids: list[str] = Field(default_factory=list)


class TrajectoryModelCall(_Part):
    """One model call of a trajectory."""

    model_call_id: str | None = None
    invocation_id: str | None = None


class TrajectoryToolCall(ToolCallObservation):
    """A tool call with its arguments and its output."""

    model_config = ConfigDict(extra="allow", validate_assignment=True)

    arguments: Any = None
    output: Any = None


def _fields(part: Any) -> Any:
    """The fields of a part that is an object of another class, such as an observation."""
    is_other = isinstance(part, BaseModel) and not isinstance(part, (_Part, TrajectoryToolCall))
    return part.model_dump() if is_other else part


class TrajectoryRecord(_Observed):
    """A whole trajectory, as a rollout's record holds it in `ng_trajectory`."""

    schema_version: Literal["1.0"] = "1.0"
    task_id: Any = None
    rollout_id: str | None = None
    invocations: list[AgentInvocation] = Field(default_factory=list)
    turns: list[Annotated[TrajectoryTurn, BeforeValidator(_fields)]] = Field(default_factory=list)
    model_calls: list[Annotated[TrajectoryModelCall, BeforeValidator(_fields)]] = Field(default_factory=list)
    tool_calls: list[Annotated[TrajectoryToolCall, BeforeValidator(_fields)]] = Field(default_factory=list)
    gaps: list[ObservationGap] = Field(default_factory=list)


def join_model_call_observations(observations: Any, model_calls: Any) -> Any:
    """Give each captured call to the invocation whose id is the call's `client_session_id`, and return `observations`.

    `observations` is a bundle or a list of invocations. A call is a mapping or a model with `model_call_id`. Calls that
    an invocation already names by that id or by their response, and calls of other sessions, change nothing. The
    arguments may be swapped.
    """
    if isinstance(model_calls, AgentObservationBundle):
        observations, model_calls = model_calls, observations
    invocations = observations.invocations if isinstance(observations, AgentObservationBundle) else observations
    named = [call for invocation in invocations for call in invocation.model_calls]
    known = {name for call in named for name in (call.model_call_id, call.response_id) if name is not None}
    by_id = {invocation.invocation_id: invocation for invocation in invocations}
    for call in model_calls:
        call_id, response_id, session = (
            name if isinstance(name := field_of(call, key), str) else None
            for key in ("model_call_id", "response_id", "client_session_id")
        )
        invocation = by_id.get(session or "")
        if invocation is not None and call_id is not None and not {call_id, response_id} & known:
            known.add(call_id)
            invocation.model_calls.append(ModelCallRef(model_call_id=call_id))
    return observations


def check_invocations(invocations: Iterable[AgentInvocation]) -> None:
    """Raise `ValueError` if two invocations share an id, or if one is its own ancestor."""
    parents: dict[str, str | None] = {}
    for invocation in invocations:
        if invocation.invocation_id in parents:
            raise ValueError(f"two invocations have the id {invocation.invocation_id!r}")
        parents[invocation.invocation_id] = invocation.parent_invocation_id
    _check_no_cycle(parents)


def _check_no_cycle(parents: Mapping[str, str | None]) -> None:
    rooted: set[str] = set()
    for start in parents:
        path: dict[str, None] = {}
        current: str | None = start
        while current is not None and current in parents and current not in rooted:
            if current in path:
                raise ValueError(f"invocation {current!r} is its own ancestor: {' -> '.join(path)} -> {current}")
            path[current] = None
            current = parents[current]
        rooted.update(path)


def _seconds(moment: Moment) -> float:
    """Seconds since 1970. A date without a time zone counts as UTC."""
    if isinstance(moment, datetime):
        return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return moment
