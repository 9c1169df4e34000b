"""The counter from the documentation, and rows for it, as fixtures."""

from __future__ import annotations

from typing import Any

import pytest

import ludus
from ludus import Resources, Response, tool


class Counter(Resources):
    """The counter from the documentation."""

    class Task(ludus.Task):
        expected_count: int = 1

    async def open(self, task: Task) -> None:
        self.count = 0

    @tool
    async def increment_counter(self, count: int) -> dict[str, bool]:
        """Add to the counter."""
        self.count += count
        return {"success": True}

    async def verify(self, task: Task, response: Response) -> float:
        return float(self.count == task.expected_count)


@pytest.fixture
def counter() -> type[Counter]:
    return Counter


@pytest.fixture
def rows() -> Any:
    """A function that makes rows: `rows(3, expected_count=1)`."""

    def make(count: int, **fields: Any) -> list[dict[str, Any]]:
        return [{"responses_create_params": {"input": f"Question {n}"}, "number": n, **fields} for n in range(count)]

    return make
