"""How qualification answers puzzles of ARC: the expected grid in a fenced block, and grids that are nearly right."""

from __future__ import annotations

import json
from typing import Any

from ludus_lab.arc.grids import Grid, shown


def gold(task: Any) -> str:
    """The expected grid as text."""
    return shown(task.expected_grid)


def answer(task: Any, text: str) -> str:
    """A text in the block where the verifier looks."""
    return f"The rule is clear.\n```\n{text}\n```"


def oracle(task: Any) -> str:
    """The expected grid."""
    return answer(task, gold(task))


def preserving(task: Any) -> dict[str, Any]:
    """The expected grid in other spellings."""
    grid = task.expected_grid
    first_try = f"First I thought of:\n```\n{shown(_changed(grid))}\n```\nNo."
    return {
        "no_spaces": answer(task, gold(task).replace(" ", "")),
        "as_json": answer(task, json.dumps(grid)),
        "named_block": f"```text\n{gold(task)}\n```",
        "text_after": f"{oracle(task)}\nThat is all.",
        "after_another": f"{first_try}\n{oracle(task)}",
    }


def breaking(task: Any) -> dict[str, Any]:
    """Grids that differ in a cell, a row or their shape, and the right grid in the wrong place."""
    grid = task.expected_grid
    wrong = {
        "one_cell": _changed(grid),
        "row_missing": grid[:-1] or _changed(grid),
        "row_twice": [*grid, grid[-1]],
        "column_twice": [[*row, row[-1]] for row in grid],
        "all_zero": [[0] * len(row) for row in grid] if any(map(any, grid)) else _changed(grid),
    }
    return {
        **{name: answer(task, shown(each)) for name, each in wrong.items()},
        "without_block": gold(task),
        "unclosed": f"```\n{gold(task)}",
        "two_grids_in_a_block": answer(task, f"{gold(task)}\n\n{gold(task)}"),
        "right_one_first": f"{oracle(task)}\nOr rather:\n```\n{shown(_changed(grid))}\n```",
        "ragged": answer(task, f"{gold(task)} 1"),
    }


def exploits(task: Any) -> dict[str, Any]:
    """The last input again, which several rules leave almost unchanged."""
    last = str(task.input[-1]["content"]).rpartition(":\n")[2]
    return {"copies_the_input": answer(task, last)}


def _changed(grid: Grid) -> Grid:
    """The grid with another digit in its last cell."""
    return [*grid[:-1], [*grid[-1][:-1], (grid[-1][-1] + 1) % 10]]
