"""The schema of a server's rows: `TaskData` in the file `task_data.py` beside its `app.py`."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from ludus.errors import UserError


def row_problems(folder: Path, row: dict[str, Any]) -> list[tuple[str, str]]:
    """What the schema says of a row, and fields that the row has twice: each a field and a reason."""
    from nemo_gym.episode_types import is_materialized_task_row
    from nemo_gym.task_data import normalize_task_fields

    schema = task_data_schema(folder)
    if schema is None:
        return []
    task = row["task_input"] if is_materialized_task_row(row) else row
    fields, conflicts = normalize_task_fields(task if isinstance(task, dict) else {})
    problems = [(key, "has two values, which differ") for key in conflicts]
    try:
        schema.validate_python(fields)
    except ValidationError as error:
        problems += [(".".join(map(str, found["loc"])) or "row", found["msg"]) for found in error.errors()]
    return problems


@cache
def task_data_schema(folder: Path) -> TypeAdapter[Any] | None:
    """The schema of a folder; None if it has none. Raises a `UserError` for one that cannot be used."""
    from nemo_gym.task_data import TaskDataSchemaError, load_task_data_schema

    try:
        return load_task_data_schema(folder)
    except TaskDataSchemaError as error:
        raise UserError(" ".join(str(error).split()), "Repair task_data.py, or remove it") from error
