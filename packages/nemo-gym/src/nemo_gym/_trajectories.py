"""The trajectory of a finished rollout, from what its agent reported and what the model servers captured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from nemo_gym._metrics import number
from nemo_gym._responses import field_of, is_from_model
from nemo_gym.rollout_correlation import maybe_rollout_id_from_run_body
from nemo_gym.rollout_observability import (
    AgentObservationBundle,
    ModelCallRef,
    ObservationGap,
    ToolCallObservation,
    TrajectoryModelCall,
    TrajectoryRecord,
    TrajectoryToolCall,
    TrajectoryTurn,
    join_model_call_observations,
)

Row = Mapping[str, Any]

TRAJECTORY, PERF = "ng_trajectory", "ng_perf"
_OBSERVATIONS, _CAPTURE = "ng_agent_observations", "ng_model_call_capture"
_MOST_DETAIL = 500
_TOKENS = ("input_tokens", "output_tokens", "total_tokens")
#: The names of token counts in Chat Completions.
_CHAT_TOKENS = {"input_tokens": "prompt_tokens", "output_tokens": "completion_tokens"}


def trajectory_identity(row: Row, result: Row | None = None) -> tuple[str | None, str | None]:
    """The ids of a rollout's task and of the rollout, each as text; None if unknown.

    The task is that of a materialized row, else its index.
    """
    task, rollout = None, None
    for source in (row, result or {}):
        task = task if task is not None else _task_of(source)
        rollout = rollout or maybe_rollout_id_from_run_body(source)
    return task, rollout


def _task_of(row: Row) -> str | None:
    named = row.get("_ng_task_id", row.get("task_id"))
    if isinstance(named, Mapping):
        named = named.get("task_id")
    task = named if named is not None else row.get("_ng_task_index")
    return str(task) if task is not None else None


def build_trajectory(row: Row, result: Row) -> TrajectoryRecord:
    """The trajectory of a result. One that its agent wrote is kept, and gets the ids that it lacks."""
    task_id, rollout_id = trajectory_identity(row, result)
    own = _plain(result.get(TRAJECTORY))
    if isinstance(own, Mapping):
        record = TrajectoryRecord.model_validate(own)
        record.task_id = record.task_id if record.task_id is not None else task_id
        record.rollout_id = record.rollout_id or rollout_id
        return record
    capture = _plain(result.get(_CAPTURE)) or {}
    calls = [call for call in map(_plain, capture.get("calls") or ()) if isinstance(call, Mapping)]
    bundle = _bundle(_plain(result.get(_OBSERVATIONS)))
    join_model_call_observations(bundle, calls)
    items = _items(result, bundle)
    invocation_of = {
        call.model_call_id: invocation.invocation_id
        for invocation in bundle.invocations
        for call in invocation.model_calls
    }
    return TrajectoryRecord(
        task_id=task_id,
        rollout_id=rollout_id,
        invocations=bundle.invocations,
        turns=_turns(calls, items, invocation_of),
        model_calls=[
            TrajectoryModelCall.model_validate({"invocation_id": invocation_of.get(call.get("model_call_id")), **call})
            for call in calls
        ],
        tool_calls=_tool_calls(bundle, items),
        gaps=[*map(_gap, capture.get("gaps") or ()), *bundle.gaps],
    )


def _bundle(reported: Any) -> AgentObservationBundle:
    """What the agent reported; a gap in its place if it reported nothing, or something else."""
    code, detail = "agent_observations_missing", None
    if reported is not None:
        try:
            return AgentObservationBundle.model_validate(reported)
        except ValidationError as error:
            code, detail = "agent_observations_invalid", str(error)[:_MOST_DETAIL]
    return AgentObservationBundle(source="collector", gaps=[ObservationGap(code=code, detail=detail)])


def performance(record: TrajectoryRecord, result: Row) -> dict[str, Any]:
    """The figures of a rollout: turns, tool calls, tokens, and the time of its model calls."""
    calls = [call.model_dump() for call in record.model_calls]
    usages = [usage for call in calls if (usage := _usage(call))]
    response = _plain(result.get("response")) or {}
    coverage = len(usages) / len(calls) if calls else None
    if not calls and isinstance(response.get("usage"), Mapping):
        usages = [response["usage"]]
    tokens = {name: sum(_count(usage, name) for usage in usages) for name in _TOKENS} if usages else {}
    times = (call.get("latency_ms", call.get("duration_ms")) for call in calls)
    latencies = [time for time in map(number, times) if time is not None]
    return {
        "num_turns": len(record.turns),
        "num_tool_calls": len(record.tool_calls),
        "token_observability_coverage": coverage,
        **tokens,
        "total_latency_ms": sum(latencies) if latencies else None,
    }


def _items(result: Row, bundle: AgentObservationBundle) -> list[Row]:
    """The items of the rollout: those of its response, else those of the invocations' conversations."""
    response = _plain(result.get("response")) or {}
    output = response.get("output") if isinstance(response, Mapping) else None
    items = output or [item for invocation in bundle.invocations for item in invocation.conversation]
    return [item for item in map(_plain, items) if isinstance(item, Mapping)]


def _turns(calls: Sequence[Row], items: Sequence[Row], invocation_of: Mapping[Any, str]) -> list[TrajectoryTurn]:
    """One turn for each captured call; without a capture, one for each run of the model's items."""
    if calls:
        return [
            TrajectoryTurn(
                turn_index=index,
                invocation_id=invocation_of.get(call.get("model_call_id")),
                model_call=ModelCallRef(model_call_id=call["model_call_id"]) if call.get("model_call_id") else None,
                tool_call_ids=_calls_in(field_of(call.get("response"), "output") or ()),
            )
            for index, call in enumerate(calls)
        ]
    runs: list[list[Row]] = []
    answered = True
    for item in items:
        if is_from_model(item):
            if answered:
                runs.append([])
            runs[-1].append(item)
        answered = not is_from_model(item)
    return [TrajectoryTurn(turn_index=index, tool_call_ids=_calls_in(run)) for index, run in enumerate(runs)]


def _tool_calls(bundle: AgentObservationBundle, items: Sequence[Row]) -> list[TrajectoryToolCall]:
    """The observed tool calls, with arguments and outputs of the items; without observations, those of the items."""
    arguments = {item["call_id"]: item for item in items if item.get("type") == "function_call" and "call_id" in item}
    outputs = {
        item["call_id"]: item.get("output")
        for item in items
        if item.get("type") == "function_call_output" and "call_id" in item
    }
    observed = [record for record in bundle.records if isinstance(record, ToolCallObservation)]
    if not observed:
        observed = [
            ToolCallObservation(
                tool_call_id=call_id,
                tool_name=item.get("name"),
                status="completed" if call_id in outputs else "unknown",
            )
            for call_id, item in arguments.items()
        ]
    return [
        TrajectoryToolCall(
            **call.model_dump(),
            arguments=arguments.get(call.tool_call_id, {}).get("arguments"),
            output=outputs.get(call.tool_call_id),
        )
        for call in observed
    ]


def _calls_in(items: Any) -> list[str]:
    calls = (item for item in map(_plain, items) if isinstance(item, Mapping) and item.get("type") == "function_call")
    return [call["call_id"] for call in calls if isinstance(call.get("call_id"), str)]


def _gap(gap: Any) -> ObservationGap:
    """A gap of a capture, which may be only a code."""
    fields = _plain(gap)
    if not isinstance(fields, Mapping):
        return ObservationGap(code=str(gap))
    detail = fields.get("detail")
    return ObservationGap(code=str(fields.get("code", "unknown")), detail=None if detail is None else str(detail))


def _usage(call: Row) -> Row | None:
    usage = call.get("usage") or field_of(_plain(call.get("response")) or {}, "usage")
    return usage if isinstance(usage, Mapping) else None


def _count(usage: Row, name: str) -> int:
    value = usage.get(name, usage.get(_CHAT_TOKENS.get(name, name)))
    return value if isinstance(value, int) else 0


def _plain(value: Any) -> Any:
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else value
