"""Spreadsheet formulas that a model wrote: read, checked and computed.

A formula begins with `=` and may use numbers, + - * / ( ), cells such as B2, and the functions SUM, MIN, MAX, AVERAGE
and COUNT of ranges such as B2:B5. Any text is accepted; other texts than formulas raise `FormulaError`. Every cell is
computed once, so the time is in proportion to the length of all formulas and the size of their ranges.
"""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from statistics import fmean

MAX_CHARACTERS = 200

#: How many formulas may lie between a cell and the numbers that it is computed from.
MAX_DEPTH = 50

_CELL = re.compile(r"([A-Z])([1-9]\d?)")
_RANGE = re.compile(r"\b([A-Z][1-9]\d?):([A-Z][1-9]\d?)\b")
_FORMULA = re.compile(r"[A-Z0-9+\-*/():,. ]+")
_OPERATORS: dict[type, Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
_FUNCTIONS: dict[str, Callable[[list[float]], float]] = {
    "SUM": math.fsum,
    "MIN": min,
    "MAX": max,
    "AVERAGE": fmean,
    "COUNT": len,
}


class FormulaError(ValueError):
    """A cell has no value. The message names the cell and the reason."""


class FormulaSheet:
    """Cells A1 to Z99 with their contents: a number, or a formula. A cell without content counts as 0.

    FormulaSheet({"A1": "2", "A2": "3", "A3": "=SUM(A1:A2) * 10"}).value("A3")   # 50.0
    """

    def __init__(self, cells: Mapping[str, str]) -> None:
        self.cells = dict(cells)
        self._values: dict[str, float] = {}
        self._open: list[str] = []

    def value(self, cell: str) -> float:
        """The number in a cell. Raises `FormulaError` if there is none."""
        if not _CELL.fullmatch(cell):
            raise FormulaError(f"{cell[:20]!r} is not a cell: cells are A1 to Z99")
        if cell not in self._values:
            if cell in self._open or len(self._open) > MAX_DEPTH:
                raise FormulaError(f"{cell} needs its own value, or a chain of more than {MAX_DEPTH} formulas")
            self._open.append(cell)
            try:
                self._values[cell] = self._computed(cell, self.cells.get(cell, "0").strip())
            finally:
                self._open.pop()
        return self._values[cell]

    def _computed(self, cell: str, content: str) -> float:
        try:
            number = self._evaluated(_tree(content[1:])) if content.startswith("=") else float(content)
        except FormulaError:
            raise
        except (ArithmeticError, ValueError) as error:
            raise FormulaError(f"{cell} has no value: {error}") from error
        if not math.isfinite(number):
            raise FormulaError(f"{cell} has no value: the number is too large")
        return number

    def _evaluated(self, node: ast.expr) -> float:
        match node:
            case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
                return float(number)
            case ast.Name(id=cell):
                return self.value(cell)
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return -self._evaluated(operand)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
                return _OPERATORS[type(op)](self._evaluated(left), self._evaluated(right))
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS and arguments:
                return float(_FUNCTIONS[name]([value for argument in arguments for value in self._values_of(argument)]))
        raise FormulaError("a formula has numbers, + - * / ( ), cells, and SUM, MIN, MAX, AVERAGE, COUNT of cells")

    def _values_of(self, argument: ast.expr) -> Iterator[float]:
        """The numbers of one argument: the cells of a range that have content, or the value of an expression."""
        match argument:
            case ast.Constant(value=str(limits)):
                first, last = limits.split(":")
                columns, numbers = sorted(first[0] + last[0]), sorted((int(first[1:]), int(last[1:])))
                for column in range(ord(columns[0]), ord(columns[1]) + 1):
                    for number in range(numbers[0], numbers[1] + 1):
                        if f"{chr(column)}{number}" in self.cells:
                            yield self.value(f"{chr(column)}{number}")
            case _:
                yield self._evaluated(argument)


def _tree(formula: str) -> ast.expr:
    """The syntax tree of a formula: Python reads it, with every range made a text."""
    if len(formula) > MAX_CHARACTERS or not _FORMULA.fullmatch(formula):
        raise FormulaError(f"{formula[:40]!r} is not a formula of at most {MAX_CHARACTERS} characters")
    try:
        return ast.parse(_RANGE.sub(r'"\1:\2"', formula.strip()), mode="eval").body
    except SyntaxError as error:
        raise FormulaError(f"{formula[:40]!r} is not a formula") from error
