"""Statistics over verified rollouts, in the format of NeMo Gym's `/aggregate_metrics`."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from typing import Any

from ludus.http.messages import Incoming, Refusal, Reply

Rows = list[dict[str, Any]]

_TASK = "_ng_task_index"
_NOT_MEASURED = {_TASK, "_ng_rollout_index", "_ng_attempt_index", "_rowidx"}


def aggregate(rows: Rows) -> dict[str, Any]:
    """Mean, max, min, median and standard deviation of every number, for each task and over all of them."""
    groups: defaultdict[Any, Rows] = defaultdict(list)
    for row in rows:
        groups[row.get(_TASK)].append(row)
    overall = _statistics(rows)
    return {
        "group_level_metrics": [{_TASK: task, **_statistics(group)} for task, group in groups.items()],
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
    found: defaultdict[str, list[float]] = defaultdict(list)
    for row in rows:
        response = row.get("response")
        usage = response.get("usage") if isinstance(response, dict) else None
        for name, value in [*row.items(), *(usage.items() if isinstance(usage, dict) else ())]:
            if name not in _NOT_MEASURED and isinstance(value, (bool, int, float)) and math.isfinite(value):
                found[name].append(float(value))
    summary: dict[str, float | None] = {}
    for name, values in found.items():
        summary[f"mean/{name}"] = statistics.fmean(values)
        summary[f"max/{name}"] = max(values)
        summary[f"min/{name}"] = min(values)
        summary[f"median/{name}"] = statistics.median(values)
        summary[f"std/{name}"] = statistics.stdev(values) if len(values) > 1 else None
    return summary
