"""Rows that are materialized tasks: `{task_id: {taskset, task_id}, task_input: {...}}`. A server gets them flat."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson

from ludus.errors import UserError

#: What a dataset names to get its rows from `flat_rows`.
FLAT_ROWS = f"{__name__}:flat_rows"


def holds_tasks(path: Path) -> bool:
    """Whether the first row of a file is a materialized task."""
    try:
        return _is_task(next(_rows(path), {}))
    except (UserError, OSError):  # whoever reads the rows says what is wrong
        return False


def flat_rows(seed: int, path: str) -> Iterator[dict[str, Any]]:
    """The rows of a file, each as a server gets it from its environment server."""
    return (_flat(row) for row in _rows(Path(path)))


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if line.isspace():
                continue
            try:
                row = orjson.loads(line)
            except orjson.JSONDecodeError as error:
                raise UserError(f"{path}:{number}: not JSON: {error}", "Fix the row or leave it out") from error
            if not isinstance(row, dict):
                raise UserError(f"{path}:{number}: a row is an object", "Fix the row or leave it out")
            yield row


def _is_task(row: dict[str, Any]) -> bool:
    from nemo_gym.episode_types import is_materialized_task_row

    return is_materialized_task_row(row) and isinstance(row["task_input"], dict)


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """The input of a task with its `task_data` beside the request. A flat row stays as it is."""
    if not _is_task(row):
        return row
    fields = dict(row["task_input"])
    data = fields.pop("task_data") if isinstance(fields.get("task_data"), dict) else {}
    return {**data, **fields}
