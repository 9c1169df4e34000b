"""A puzzle of ARC: the model writes one grid, which must be the expected one in every cell."""

from __future__ import annotations

from pydantic import field_validator

import ludus
from ludus import Resources, Response, Verdict
from ludus_lab.arc.grids import LARGEST, Grid, grid_of, same_cells


class Arc(Resources):
    """No tools and no state: the verifier reads the last fenced block of the final text."""

    class Task(ludus.Task):
        expected_grid: Grid

        @field_validator("expected_grid")
        @classmethod
        def _check_grid(cls, grid: Grid) -> Grid:
            if not grid or not grid[0] or len({len(row) for row in grid}) != 1:
                raise ValueError("a grid needs rows of one length")
            if max(len(grid), len(grid[0])) > LARGEST or any(not 0 <= cell <= 9 for row in grid for cell in row):
                raise ValueError(f"a grid has at most {LARGEST} rows and columns of digits")
            return grid

    async def verify(self, task: Task, response: Response) -> Verdict:
        grid, expected = grid_of(response.output_text), task.expected_grid
        cells = same_cells(grid, expected) if grid is not None else 0.0
        shape = grid is not None and (len(grid), len(grid[0])) == (len(expected), len(expected[0]))
        parts = {"exact": float(grid == expected), "cells": cells, "shape": float(shape)}
        return Verdict(parts["exact"], components=parts, answered=grid is not None)
