"""A flat row as a materialized task: `{task_id: {taskset, task_id}, task_input}`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nemo_gym.episode_types import TaskId, is_materialized_task_row

#: The fields that may hold a row's own id, the first of them first.
_IDS = ("task_id", "problem_id", "instance_id")
#: The fields that route a row and are no input of the task.
_ROUTING = {"agent_ref", "task_source", "skills_ref"}


def materialize_task(row: Mapping[str, Any], *, taskset: str, task_index: int | None = None) -> dict[str, Any]:
    """The materialized form of a row. Its id is its own, else its index. `ValueError` if it has neither."""
    if is_materialized_task_row(row):
        raise ValueError("the row is materialized already: pass it as it is")
    task_input = {key: value for key, value in row.items() if key not in _ROUTING and not key.startswith("_ng_")}
    task_id = TaskId(taskset=taskset, task_id=_task_id(row, task_index))
    return {"task_id": task_id.model_dump(), "task_input": task_input}


def _task_id(row: Mapping[str, Any], task_index: int | None) -> str:
    own = next((row[key] for key in _IDS if row.get(key) is not None), None)
    if own is not None:
        return str(own)
    index = row["_ng_task_index"] if row.get("_ng_task_index") is not None else task_index
    if not isinstance(index, int) or isinstance(index, bool) or index < 0:
        raise ValueError(f"the row has none of {', '.join(_IDS)}, and its index is {index!r}: pass an int from 0 on")
    return str(index)
