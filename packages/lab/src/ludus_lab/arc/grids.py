"""Grids of digits as text: how a prompt shows one, and how an answer is read."""

from __future__ import annotations

import json
import re

Grid = list[list[int]]

#: The largest grid of the tasks has 30 rows and 30 columns.
LARGEST = 30

_FENCED = re.compile(r"```[^\n`]*\n([^`]*)```")
_ROW = re.compile(r"[0-9](?:[ \t]?[0-9]){0,29}")
_LIST = r"\[\s*[0-9](?:\s*,\s*[0-9])*\s*\]"
_JSON = re.compile(rf"\[\s*{_LIST}(?:\s*,\s*{_LIST})*\s*\]")


def shown(grid: Grid) -> str:
    """The rows of a grid, a line each, with a space between the cells."""
    return "\n".join(" ".join(map(str, row)) for row in grid)


def grid_of(text: str) -> Grid | None:
    """The grid in the last fenced block of an answer; None if the block holds anything else, or there is none.

        grid_of("So:\\n```\\n1 2\\n3 4\\n```")    # [[1, 2], [3, 4]]

    Cells may be separated by a space, by nothing, or be written as a list of lists. Only the last block counts, so an
    answer cannot offer several grids.
    """
    blocks = _FENCED.findall(text)
    if not blocks:
        return None
    block = blocks[-1].strip()
    if len(block) > 4 * LARGEST * LARGEST + 4 * LARGEST:
        return None
    if _JSON.fullmatch(block):
        grid: Grid = json.loads(block)
    else:
        lines = [line.strip() for line in block.split("\n")]
        if not all(_ROW.fullmatch(line) for line in lines):
            return None
        grid = [[int(cell) for cell in line if cell in "0123456789"] for line in lines]
    fits = len(grid) <= LARGEST and len({len(row) for row in grid}) == 1 and len(grid[0]) <= LARGEST
    return grid if fits else None


def same_cells(grid: Grid, expected: Grid) -> float:
    """The share of equal cells; 0 if the grids have different sizes."""
    if len(grid) != len(expected) or len(grid[0]) != len(expected[0]):
        return 0.0
    pairs = [
        (one, other) for row, wanted in zip(grid, expected, strict=True) for one, other in zip(row, wanted, strict=True)
    ]
    return sum(one == other for one, other in pairs) / len(pairs)
