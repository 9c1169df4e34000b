"""The trajectory of a finished rollout, from what its agent reported and what the model servers captured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from nemo_gym._metrics import number
from nemo_gym._responses import is_from_model
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
#: The names under which a capture may hold its calls.
_CALL_LISTS = ("calls", "model_calls", "records")
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
    own, gaps = result.get(TRAJECTORY), list[ObservationGap]()
    if own is not None:
        try:
            record = TrajectoryRecord.model_validate(_plain(own))
        except ValidationError as error:
            gaps.append(ObservationGap(code="trajectory_invalid", detail=str(error)[:_MOST_DETAIL]))
        else:
            record.task_id = record.task_id if record.task_id is not None else task_id
            record.rollout_id = record.rollout_id or rollout_id
            return record
    calls = captured_calls(result)
    bundle = _bundle(_plain(result.get(_OBSERVATIONS)))
    join_model_call_observations(bundle, calls)
    items = _items(result, bundle)
    invocation_of = {
        call.model_call_id: invocation.invocation_id
        for invocation in bundle.invocations
        for call in invocation.model_calls
        if call.model_call_id is not None
    }
    model_calls = []
    for call in calls:
        call_id = _text(call.get("model_call_id"))
        ids = {"model_call_id": call_id, "invocation_id": invocation_of.get(call_id or "")}
        model_calls.append(TrajectoryModelCall.model_validate({**call, **ids}))
    captured_gaps = _mapping(result.get(_CAPTURE)).get("gaps")
    return TrajectoryRecord(
        task_id=task_id,
        rollout_id=rollout_id,
        invocations=bundle.invocations,
        turns=_turns(model_calls, items),
        model_calls=model_calls,
        tool_calls=_tool_calls(bundle, items),
        gaps=[*gaps, *map(_gap, captured_gaps if isinstance(captured_gaps, list) else ()), *bundle.gaps],
    )


def captured_calls(result: Row) -> list[Row]:
    """The captured model calls of a result: a list, or a mapping that holds one."""
    capture = _plain(result.get(_CAPTURE))
    if isinstance(capture, Mapping):
        capture = next((capture[name] for name in _CALL_LISTS if isinstance(capture.get(name), list)), None)
    return _mappings(capture)


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
    response = _mapping(result.get("response"))
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
    output = _mappings(_mapping(result.get("response")).get("output"))
    return output or _mappings([item for invocation in bundle.invocations for item in invocation.conversation])


def _turns(calls: Sequence[TrajectoryModelCall], items: Sequence[Row]) -> list[TrajectoryTurn]:
    """One turn for each captured call; without a capture, one for each run of the model's items."""
    if calls:
        return [
            TrajectoryTurn(
                turn_index=index,
                invocation_id=call.invocation_id,
                model_call=ModelCallRef(model_call_id=call.model_call_id) if call.model_call_id else None,
                tool_call_ids=_call_ids(_mappings(_mapping(getattr(call, "response", None)).get("output"))),
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
    return [TrajectoryTurn(turn_index=index, tool_call_ids=_call_ids(run)) for index, run in enumerate(runs)]


def _tool_calls(bundle: AgentObservationBundle, items: Sequence[Row]) -> list[TrajectoryToolCall]:
    """The observed tool calls, with arguments and outputs of the items; without observations, those of the items."""
    by_id = {
        kind: {item["call_id"]: item for item in items if item.get("type") == kind and _text(item.get("call_id"))}
        for kind in ("function_call", "function_call_output")
    }
    calls, outputs = by_id["function_call"], by_id["function_call_output"]
    observed = [record for record in bundle.records if isinstance(record, ToolCallObservation)]
    if not observed:
        observed = [
            ToolCallObservation(
                tool_call_id=call_id,
                tool_name=_text(call.get("name")),
                status="completed" if call_id in outputs else "unknown",
            )
            for call_id, call in calls.items()
        ]
    return [
        TrajectoryToolCall(
            **call.model_dump(),
            arguments=calls.get(call.tool_call_id or "", {}).get("arguments"),
            output=outputs.get(call.tool_call_id or "", {}).get("output"),
        )
        for call in observed
    ]


def _call_ids(items: Sequence[Row]) -> list[str]:
    ids = (_text(item.get("call_id")) for item in items if item.get("type") == "function_call")
    return [call_id for call_id in ids if call_id is not None]


def _gap(gap: Any) -> ObservationGap:
    """A gap of a capture, which may be only a code."""
    fields = _plain(gap)
    if not isinstance(fields, Mapping):
        return ObservationGap(code=str(gap))
    return ObservationGap(code=str(fields.get("code", "unknown")), detail=fields.get("detail"))


def _usage(call: Row) -> Row | None:
    usage = call.get("usage") or _mapping(call.get("response")).get("usage")
    return usage if isinstance(usage, Mapping) else None


def _count(usage: Row, name: str) -> int:
    value = usage.get(name, usage.get(_CHAT_TOKENS.get(name, name)))
    return value if isinstance(value, int) else 0


def _plain(value: Any) -> Any:
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else value


def _mapping(value: Any) -> Row:
    """A mapping or the fields of a model; empty for anything else, because agents report what they like."""
    fields = _plain(value)
    return fields if isinstance(fields, Mapping) else {}


def _mappings(values: Any) -> list[Row]:
    return [fields for fields in map(_plain, values) if isinstance(fields, Mapping)] if isinstance(values, list) else []


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
