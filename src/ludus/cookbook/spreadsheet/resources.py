"""The model completes a spreadsheet with formulas.

The sheet is computed again with other inputs, so a formula earns the reward and a number that happens to be right does
not. The rows of the dataset say which inputs change and what must come out.
"""

from __future__ import annotations

import ludus
from ludus import Resources, Response, Verdict, tool
from ludus.graders.outputs import same_value

from .formulas import FormulaError, FormulaSheet


class Spreadsheet(Resources):
    """A sheet for each rollout: the names of cells and their contents."""

    class Task(ludus.Task):
        cells: dict[str, str]
        checks: list[tuple[dict[str, str], dict[str, float]]]  # inputs to change, and the values that are expected then

    async def open(self, task: Task) -> None:
        self.cells = dict(task.cells)

    @tool
    async def read_cell(self, cell: str) -> dict[str, str | float]:
        """The content of a cell, such as B2, and its value."""
        return {"content": self.cells.get(cell, ""), "value": FormulaSheet(self.cells).value(cell)}

    @tool
    async def write_cell(self, cell: str, content: str) -> float:
        """Write a number or a formula such as =SUM(B2:B5)*2 into a cell, and see its value."""
        result = FormulaSheet({**self.cells, cell: content}).value(cell)
        self.cells[cell] = content
        return result

    async def verify(self, task: Task, response: Response) -> Verdict:
        passed = sum(self.holds(inputs, expected) for inputs, expected in task.checks)
        untouched = all(self.cells[cell] == content for cell, content in task.cells.items())
        return Verdict(float(passed == len(task.checks) and untouched), passed=passed, untouched=untouched)

    def holds(self, inputs: dict[str, str], expected: dict[str, float]) -> bool:
        """Whether the expected values come out when these inputs are changed."""
        sheet = FormulaSheet({**self.cells, **inputs})
        try:
            return all(same_value(number, sheet.value(cell)) for cell, number in expected.items())
        except FormulaError:
            return False
