"""A counter with an initial value; the model must bring it to the expected value."""

from __future__ import annotations

import ludus
from ludus import Resources, Response, tool
from ludus.graders.rows import Integer


class Counter(Resources):
    """A counter that only its own rollout can see."""

    class Task(ludus.Task):
        initial_count: Integer
        expected_count: Integer

    count = 0

    async def open(self, task: Task) -> None:
        self.count = task.initial_count

    @tool
    async def increment_counter(self, count: int) -> dict[str, bool]:
        """Add to the counter."""
        self.count += count
        return {"success": True}

    @tool
    async def get_counter_value(self) -> dict[str, int]:
        """Read the counter."""
        return {"count": self.count}

    async def verify(self, task: Task, response: Response) -> float:
        return float(self.count == task.expected_count)
