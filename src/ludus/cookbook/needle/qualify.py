"""What `ludus qualify` cannot read from the rows: the other lockers in the text, as wrong answers."""

from __future__ import annotations

import re
from typing import Any


def preserving(task: Any) -> dict[str, Any]:
    """The right number in other forms."""
    right = task.expected_answer
    return {"bold": f"**Answer:** {right}", "after_thought": f"It says so in the middle.\n\nAnswer: {right}."}


def breaking(task: Any) -> dict[str, Any]:
    """The numbers of other people, all numbers at once, and the number without its line."""
    numbers = [number for number in _numbers(task) if number != task.expected_answer]
    others = {f"other_{number}": f"Answer: {number}" for number in numbers[:4]}
    every = ", ".join(_numbers(task))
    return {**others, "all_numbers": f"Answer: {every}", "no_line": task.expected_answer}


def exploits(task: Any) -> dict[str, Any]:
    """The first and the last number of the text, and a line for each number."""
    numbers = _numbers(task)
    return {
        "first_number": f"Answer: {numbers[0]}",
        "last_number": f"Answer: {numbers[-1]}",
        "a_line_for_each": "\n".join(f"Answer: {number}" for number in numbers),
    }


def chance(task: Any) -> float:
    """Picking one of the numbers in the text."""
    return 1 / len(_numbers(task))


def _numbers(task: Any) -> list[str]:
    return re.findall(r"locker (\d+)", str(task.input))
