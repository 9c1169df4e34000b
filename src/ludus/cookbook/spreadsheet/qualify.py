"""How `ludus qualify` completes the sheets: with the formulas below, one set for each row."""

from __future__ import annotations

from typing import Any

_FORMULAS = {
    "B4": {"B4": "=SUM(B1:B3)"},
    "A5": {"A5": "=AVERAGE(A1:A4)", "A6": "=MAX(A1:A4)-MIN(A1:A4)"},
    "C3": {"C3": "=C1*C2/100", "C4": "=C1+C3"},
    "C1": {"C1": "=A1*B1", "C2": "=A2*B2", "C3": "=A3*B3", "C4": "=SUM(C1:C3)*(1-D1/100)"},
    "D6": {"D6": "=D1-SUM(D2:D5)", "D7": "=SUM(D2:D5)/D1*100"},
}


def oracle(task: Any) -> list[Any] | None:
    """Write the formulas."""
    formulas = _FORMULAS.get(next(iter(task.checks[0][1])))
    return None if formulas is None else _written(formulas)


def preserving(task: Any) -> dict[str, Any]:
    """The formulas after a wrong one, and after a look at a cell."""
    wrong = {cell: "=1+1" for cell in task.checks[0][1]}
    look = {"call": "read_cell", "arguments": {"cell": "A1"}}
    return {"corrected": [*_written(wrong)[:-1], *(oracle(task) or [])], "looks_first": [look, *(oracle(task) or [])]}


def breaking(task: Any) -> dict[str, Any]:
    """The right numbers instead of formulas, a changed input, and formulas in words only."""
    numbers = {cell: str(value) for cell, value in task.checks[0][1].items()}
    turns = oracle(task) or [""]
    return {
        "numbers": _written(numbers),
        "as_formulas": _written({cell: f"={value}" for cell, value in numbers.items()}),
        "changed_input": [*_written({next(iter(task.cells)): "1"})[:-1], *turns],
        "in_words": str(turns),
        "one_missing": turns[1:],
    }


def exploits(task: Any) -> dict[str, Any]:
    """Formulas that attack the evaluation."""
    cells = task.checks[0][1]
    texts = {
        "runs_code": "=__import__('os').getpid()",
        "needs_itself": f"={next(iter(cells))}+1",
        "is_endless": "=" + "9*" * 99 + "9",
        "is_nested": "=" + "(" * 100 + "1" + ")" * 100,
        "is_nan": "nan",
    }
    return {f"cheat/{name}": _written(dict.fromkeys(cells, text)) for name, text in texts.items()}


def _written(cells: dict[str, str]) -> list[Any]:
    calls = [{"call": "write_cell", "arguments": {"cell": cell, "content": text}} for cell, text in cells.items()]
    return [*calls, "Done."]
