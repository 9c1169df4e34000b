"""Statistics over verified rollouts, in the format of NeMo Gym's `/aggregate_metrics`."""

from __future__ import annotations

import statistics
from collections import defaultdict
from typing import Any

from ludus.http.messages import Incoming, Refusal, Reply
from ludus.runtime.encoding import encode

Rows = list[dict[str, Any]]

_TASK = "_ng_task_index"
#: Numbers that identify a rollout and measure nothing.
_NOT_MEASURED = {_TASK, "_ng_rollout_index", "_ng_attempt_index", "_rowidx"}
_NOT_MEASURED |= {"repeat", "attempt", "rollout_seed", "session_seed", "branch_turn"}

#: The squares of larger numbers overflow a float: they are left out, like infinities and NaN.
_LARGEST = 1e100


def aggregate(rows: Rows) -> dict[str, Any]:
    """Mean, max, min, median and standard deviation of every number, for each task and over all of them."""
    groups: dict[bytes, Rows] = {}
    for row in rows:
        groups.setdefault(encode(row.get(_TASK)), []).append(row)  # a client may send any JSON as the index
    overall = _statistics(rows)
    return {
        "group_level_metrics": [{_TASK: group[0].get(_TASK), **_statistics(group)} for group in groups.values()],
        "agent_metrics": overall,
        "key_metrics": {name: value for name, value in overall.items() if name.startswith("mean/")},
    }


async def aggregate_metrics(incoming: Incoming) -> Reply:
    """The handler of `/aggregate_metrics`, for resources servers and agent servers."""
    rows = incoming.json().get("verify_responses")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise Refusal.field(["verify_responses"], "list_type", "verify_responses must be a list of objects")
    return Reply.of(aggregate(rows))


def _statistics(rows: Rows) -> dict[str, float | None]:
    numbers: defaultdict[str, list[float]] = defaultdict(list)
    for row in rows:
        response = row.get("response")
        usage = response.get("usage") if isinstance(response, dict) else None
        for name, value in [*row.items(), *(usage.items() if isinstance(usage, dict) else ())]:
            if name not in _NOT_MEASURED and isinstance(value, (bool, int, float)) and abs(value) < _LARGEST:
                numbers[name].append(float(value))
    summary: dict[str, float | None] = {}
    for name, values in numbers.items():
        summary[f"mean/{name}"] = statistics.fmean(values)
        summary[f"max/{name}"] = max(values)
        summary[f"min/{name}"] = min(values)
        summary[f"median/{name}"] = statistics.median(values)
        summary[f"std/{name}"] = statistics.stdev(values) if len(values) > 1 else None
    return summary
