"""The checks of rollouts and tasks: each looks at records and their `ng_trajectory` only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ludus.store.statistics import finite_number
from nemo_gym._trajectories import captured_calls
from nemo_gym.config_types import ConfigError

Record = Mapping[str, Any]
#: What a check says: the problem as a sentence, or None if there is none.
Check = Callable[[Record], str | None]

_TASK, _ROLLOUT, _FAILURE = "_ng_task_index", "_ng_rollout_index", "_ng_failure_class"
#: Statuses of tool calls that their executor gave up.
_ABANDONED = ("timeout", "cancelled", "incomplete")


def _missing_identity(record: Record) -> str | None:
    missing = [key for key in (_TASK, _ROLLOUT) if not isinstance(record.get(key), int)]
    return f"{' and '.join(missing)} missing" if missing else None


def _failed(record: Record) -> str | None:
    return f"{_FAILURE} is {record[_FAILURE]}" if record.get(_FAILURE) else None


def _reward_invalid(record: Record) -> str | None:
    if "reward" not in record or record.get(_FAILURE):  # unscored, or reported as a failure
        return None
    return f"reward {record['reward']!r:.40} is not a number" if finite_number(record["reward"]) is None else None


def _response_empty(record: Record) -> str | None:
    response = record.get("response")
    return "the response has no output" if isinstance(response, Mapping) and not response.get("output") else None


def _missing_agent_turns(record: Record) -> str | None:
    return None if _parts(record, "turns") else "the trajectory has no turn"


def _model_call_failed(record: Record) -> str | None:
    for call in _parts(record, "model_calls"):
        code = call.get("status_code", call.get("upstream_status_code"))
        status = call.get("status", code)
        failed = status in ("failed", "error") or (isinstance(status, int) and status >= 400)
        if failed or (isinstance(code, int) and code >= 400) or call.get("error_category"):
            reason = call.get("error_category") or code or status
            return f"model call {call.get('model_call_id')} failed: {reason}"
    return None


def _capture_mismatch(record: Record) -> str | None:
    known = {call.get("model_call_id") for call in _parts(record, "model_calls")}
    if record.get("ng_model_call_capture") is not None:
        ids = {call.get("model_call_id") for call in captured_calls(record)}
        return f"calls {sorted(map(str, ids ^ known))} are only in one of both" if ids != known else None
    named = [call for part in _parts(record, "invocations") for call in part.get("model_calls") or ()]
    ids = {call.get("model_call_id") for call in named if isinstance(call, Mapping)} - {None}
    return f"model calls lack {sorted(map(str, ids - known))}" if known and ids - known else None


def _invocation_failed(record: Record) -> str | None:
    failed = [part for part in _parts(record, "invocations") if part.get("status") == "failed"]
    return f"invocation {failed[0].get('invocation_id')} failed: {failed[0].get('error_type')}" if failed else None


def _tool_call_abandoned(record: Record) -> str | None:
    calls = [call for call in _parts(record, "tool_calls") if call.get("status") in _ABANDONED]
    return f"tool call {calls[0].get('tool_call_id')} ended as {calls[0]['status']}" if calls else None


def _unknown_invocation(record: Record) -> str | None:
    known = {part.get("invocation_id") for part in _parts(record, "invocations")}
    parts = [*_parts(record, "turns"), *_parts(record, "tool_calls")]
    unknown = {part.get("invocation_id") for part in parts} - known - {None}
    return f"no invocation has the id {sorted(map(str, unknown))[0]}" if unknown else None


#: Checks of a record, and those that need its trajectory. Two more check lines and pairs: `LINE_CHECKS`.
RECORD_CHECKS: dict[str, Check] = {
    "rollout_missing_identity": _missing_identity,
    "rollout_failed": _failed,
    "rollout_reward_invalid": _reward_invalid,
    "rollout_response_empty": _response_empty,
}
TRAJECTORY_CHECKS: dict[str, Check] = {
    "rollout_missing_agent_turns": _missing_agent_turns,
    "model_call_failed": _model_call_failed,
    "trajectory_capture_mismatch": _capture_mismatch,
    "invocation_failed": _invocation_failed,
    "tool_call_abandoned": _tool_call_abandoned,
    "trajectory_unknown_invocation": _unknown_invocation,
}
LINE_CHECKS = ("record_unreadable", "rollout_duplicate_identity")
TASK_CHECKS = ("task_missing_rollouts", "task_without_healthy_rollout")
ALL_CHECKS = (*LINE_CHECKS, *RECORD_CHECKS, *TRAJECTORY_CHECKS, *TASK_CHECKS)


def check_names(ignored: Sequence[str]) -> frozenset[str]:
    """The names of checks to ignore; `ConfigError` for one that does not exist."""
    unknown = sorted(set(ignored) - set(ALL_CHECKS))
    if unknown:
        raise ConfigError(f"there is no check {unknown[0]}. The checks are: {', '.join(ALL_CHECKS)}")
    return frozenset(ignored)


def trajectory_of(record: Record) -> Record | None:
    """The trajectory in a record."""
    trajectory = record.get("ng_trajectory")
    return trajectory if isinstance(trajectory, Mapping) else None


def _parts(record: Record, name: str) -> list[Record]:
    parts = (trajectory_of(record) or {}).get(name)
    return [part for part in parts if isinstance(part, Mapping)] if isinstance(parts, Sequence) else []
