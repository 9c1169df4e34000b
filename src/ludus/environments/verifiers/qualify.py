"""How qualification solves the example taskset, sums. For other tasksets the right answer is unknown."""

from __future__ import annotations

from typing import Any


def oracle(task: Any) -> str | None:
    """The sum and nothing else."""
    answer = task.verifiers.get("answer")
    return None if answer is None else str(answer)


def preserving(task: Any) -> dict[str, Any]:
    """The same sum with whitespace around it."""
    answer = oracle(task)
    return {} if answer is None else {"spaces": f"  {answer} ", "lines": f"\n{answer}\n"}


def breaking(task: Any) -> dict[str, Any]:
    """Other numbers, and the sum in the wrong place."""
    answer = oracle(task)
    if answer is None:
        return {}
    return {"off_by_one": str(int(answer) + 1), "first": f"{answer} and {int(answer) + 1}", "longer": f"{answer}0"}
