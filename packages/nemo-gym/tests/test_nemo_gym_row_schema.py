"""`ludus data validate` checks the rows of a server against its own schema, `task_data.py`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hosted_servers import COUNTER, row, write_server

from ludus import UserError

pytest.importorskip("fastapi", reason="needs FastAPI: pip install 'ludus-nemo-gym[servers]'")
data = pytest.importorskip("ludus_data.validate", reason="needs the package: pip install ludus-data")

SCHEMA = """
from pydantic import BaseModel

class TaskData(BaseModel):
    initial_count: int
    expected_count: int
    unit: str = "pieces"
"""


def write(tmp_path: Path, name: str, schema: str, rows: list[dict[str, Any]]) -> tuple[Path, Path]:
    folder = write_server(tmp_path, name, COUNTER, rows, files={"task_data.py": schema})
    return folder, folder / "data" / "example.jsonl"


def test_rows_are_checked_against_the_schema_of_their_server(tmp_path: Path) -> None:
    good = row("?", initial_count=1, expected_count=6)
    bad = [row("?", initial_count="one", expected_count=6), row("?", initial_count=1)]
    twice = row("?", initial_count=1, expected_count=6, verifier_metadata={"expected_count": 7})
    folder, file = write(tmp_path, "checked_rows", SCHEMA, [good, *bad, twice])
    report = data.validate([file], [folder])
    assert (report.rows, report.bad_rows) == (4, 3)
    fields = [(json.loads(json.dumps(problem.where)).rpartition(":")[2], problem.field) for problem in report.problems]
    assert fields == [("2", "initial_count"), ("3", "expected_count"), ("4", "expected_count")]


def test_a_schema_that_cannot_be_used_says_so(tmp_path: Path) -> None:
    folder, file = write(tmp_path, "broken_schema", "TaskData = open('nowhere')", [row("?")])
    with pytest.raises(UserError, match="task_data.py has no usable TaskData: FileNotFoundError"):
        data.validate([file], [folder])
