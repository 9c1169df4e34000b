"""Checks the rows of a dataset against the schema that a server declares as `TaskData` in its `task_data.py`."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from nemo_gym.episode_types import is_materialized_task_row
from nemo_gym.path_utils import find_path

#: The keys of a row that are no fields of the task.
RESERVED_ROW_KEYS = frozenset(
    {"responses_create_params", "agent_ref", "task_source", "_ng_task_index", "_ng_rollout_index"}
)

_LEGACY = "verifier_metadata"
_MOST_ERRORS = 5


class TaskDataSchemaError(ValueError):
    """A server's `task_data.py` cannot be used."""


def load_task_data_schema(folder: Path) -> TypeAdapter[Any] | None:
    """The schema of a server's folder, or None if it has no `task_data.py`."""
    file = Path(folder) / "task_data.py"
    if not file.is_file():
        return None
    # Each file is a module of its own name, because many servers have a task_data.py.
    name = f"_task_data_{hashlib.sha256(str(file.resolve()).encode()).hexdigest()[:16]}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise TaskDataSchemaError(f"{file} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # pydantic resolves annotations there
    try:
        spec.loader.exec_module(module)
        return TypeAdapter(module.TaskData)
    except Exception as error:
        del sys.modules[name]
        raise TaskDataSchemaError(f"{file} has no usable TaskData: {type(error).__name__}: {error}") from error


def find_server_dir(name: str, base_folder: str = "resources_servers") -> Path | None:
    """The folder of a server, or None."""
    path = find_path(Path(base_folder) / name)
    return path if path is not None and path.is_dir() else None


def normalize_task_fields(row: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The fields of a task, flat, and the keys that occur with unequal values. The outer value counts.

    The contents of `verifier_metadata` and `task_data` move up. Where these are no mappings, they stay.
    """
    fields = {key: value for key, value in row.items() if key not in RESERVED_ROW_KEYS}
    conflicts: list[str] = []
    for container in (_LEGACY, "task_data"):
        if isinstance(fields.get(container), dict):
            for key, value in fields.pop(container).items():
                if fields.setdefault(key, value) != value:
                    conflicts.append(key)
    return fields, conflicts


@dataclass
class TaskDataReport:
    """The findings about a dataset. Each key has the number of rows that it occurs in."""

    server_name: str
    dataset_fpath: str
    rows: int = 0
    error_rows: int = 0
    errors: list[str] = field(default_factory=list)
    unknown_keys: Counter[str] = field(default_factory=Counter)
    conflicting_keys: Counter[str] = field(default_factory=Counter)
    misplaced_keys: Counter[str] = field(default_factory=Counter)

    @property
    def clean(self) -> bool:
        """Whether there is nothing to mend."""
        return not (self.error_rows or self.unknown_keys or self.conflicting_keys or self.misplaced_keys)

    def summary(self) -> str:
        """The findings as text."""
        title = f"{self.dataset_fpath} ({self.server_name}): {self.rows} rows"
        if self.clean:
            return f"{title}, all valid"
        lists = {"unknown": self.unknown_keys, "conflicting": self.conflicting_keys, "misplaced": self.misplaced_keys}
        keys = [
            f"{name} keys: " + ", ".join(f"{key} ({count} rows)" for key, count in sorted(counts.items()))
            for name, counts in lists.items()
            if counts
        ]
        return "\n  ".join([f"{title}, {self.error_rows} with errors", *self.errors, *keys])

    def add_error(self, index: int, text: str) -> None:
        """Count a row with an error. The texts of the first five are kept."""
        self.error_rows += 1
        if len(self.errors) < _MOST_ERRORS:
            self.errors.append(f"row {index}: {text}")


class TaskDataValidator:
    """Checks the rows of a dataset one by one and collects the findings in `report`."""

    def __init__(self, server_name: str, adapter: TypeAdapter[Any], dataset_fpath: str | Path) -> None:
        self._adapter = adapter
        self.report = TaskDataReport(server_name, str(dataset_fpath))

    def validate_row(self, index: int, row: Mapping[str, Any]) -> None:
        """Check a row, flat or materialized."""
        self.report.rows += 1
        if is_materialized_task_row(row):
            row = row["task_input"]
            if not isinstance(row, Mapping):
                self.report.add_error(index, "task_input is not an object")
                return
        fields, conflicts = normalize_task_fields(row)
        self.report.conflicting_keys.update(set(conflicts))
        try:
            task = self._adapter.validate_python(fields)
        except ValidationError as error:
            self.report.add_error(index, _text(error))
            return
        if isinstance(task, BaseModel):
            self.report.unknown_keys.update((task.model_extra or {}).keys())
            self.report.misplaced_keys.update(_misplaced(type(task), row))


def validate_jsonl_rows(
    server_name: str, adapter: TypeAdapter[Any], dataset_fpath: str | Path, lines: Iterable[str | bytes]
) -> TaskDataReport:
    """Check the lines of a JSONL file. Empty lines do not count."""
    validator = TaskDataValidator(server_name, adapter, dataset_fpath)
    report = validator.report
    for index, line in enumerate(line for line in lines if line.strip()):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            report.rows += 1
            report.add_error(index, f"not JSON: {error}")
            continue
        if isinstance(row, dict):
            validator.validate_row(index, row)
        else:
            report.rows += 1
            report.add_error(index, "not an object")
    return report


def _misplaced(model: type[BaseModel], row: Mapping[str, Any]) -> set[str]:
    """Fields that the server reads from `verifier_metadata` only, and that the row has at its top only."""
    if "task_data" in row:
        return set()
    legacy = row.get(_LEGACY)
    nested = legacy if isinstance(legacy, dict) else {}
    keys = {
        alias or name
        for name, info in model.model_fields.items()
        for alias in [info.alias]
        if isinstance(info.json_schema_extra, dict) and info.json_schema_extra.get("legacy_location") == _LEGACY
    }
    return {key for key in keys if key in row and key not in nested}


def _text(error: ValidationError) -> str:
    problems = [f"{'.'.join(map(str, problem['loc'])) or 'row'}: {problem['msg']}" for problem in error.errors()]
    return "; ".join(problems)
