"""An endless stream of expressions, computed with the tools' operations. The same seed and settings give the same rows.

Each row holds its solution: the calls in the order in which to make them.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

from ludus.environments.math_advanced_calculations.operations import compute
from ludus.errors import UserError

Row = dict[str, Any]
MAX_SETTING = 6

#: An expression whose value is larger is drawn again: copying twenty digits teaches nothing.
LARGEST = 1e6

#: How an expression writes each operation, and the names of the operation's arguments.
NOTATION = {
    "add": ("({} + {})", ["a", "b"]),
    "subtract": ("({} - {})", ["a", "b"]),
    "multiply": ("({} * {})", ["a", "b"]),
    "divide": ("({} / {})", ["a", "b"]),
    "power": ("({} ** {})", ["a", "b"]),
    "log": ("log({}, {})", ["a", "base"]),
    "sin": ("sin({})", ["radians"]),
    "cos": ("cos({})", ["radians"]),
    "negate": ("(-{})", ["a"]),
    "pi": ("pi", []),
}
WITH_ARGUMENTS = [name for name, (_, arguments) in NOTATION.items() if arguments]

QUESTION = (
    "Numbers behave in their own way here: not even adding gives what you would expect, and only the tools know the "
    "rules. Work out {sums}. Take every single step with a tool, the innermost first, and use what it returns as it "
    "is, with all of its digits. Angles are in radians, and log(x, y) is the logarithm of x to the base y."
)


@dataclass(frozen=True)
class Expression:
    """A number, or an operation on other expressions. `steps` are the calls that compute its value, in order."""

    text: str
    value: float
    steps: tuple[Row, ...] = ()


def stream(seed: int, *, depth: int = 4, breadth: int = 4) -> Iterator[Row]:
    """Endless rows of at most `breadth` expressions, nested at most `depth` deep.

    stream(7)
    stream(7, depth=2, breadth=1)
    """
    for name, value in (("depth", depth), ("breadth", breadth)):
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MAX_SETTING:
            raise UserError(f"data.{name}={value!r:.40} must be a whole number from 1 to {MAX_SETTING}")
    return (row(random.Random(f"arithmetic/{seed}/{number}"), number, depth, breadth) for number in count())


def row(rng: random.Random, number: int, depth: int, breadth: int) -> Row:
    """One to `breadth` expressions. The row's `depth` is that of its deepest expression, 2 or more if allowed."""
    deepest = rng.randint(min(2, depth), depth)
    drawn = [draw(rng, deepest), *(draw(rng, rng.randint(1, deepest)) for _ in range(rng.randint(0, breadth - 1)))]
    rng.shuffle(drawn)
    *others, last = (expression.text for expression in drawn)
    asked = f"{', '.join(others)} and {last}" if others else last
    return {
        "id": number,
        "responses_create_params": {
            "input": [{"role": "user", "content": QUESTION.format(sums=asked)}],
            "parallel_tool_calls": False,
        },
        "ground_truth": json.dumps([expression.value for expression in drawn]),
        "depth": deepest,
        "breadth": len(drawn),
        "solution": [step for expression in drawn for step in expression.steps],
    }


def draw(rng: random.Random, depth: int) -> Expression:
    """An expression of exactly this depth that can be computed."""
    if depth == 0:
        number = rng.randint(1, 12)
        return Expression(str(number), float(number))
    while True:
        name = rng.choice(WITH_ARGUMENTS if depth > 1 else list(NOTATION))
        form, arguments = NOTATION[name]
        parts = [draw(rng, rng.randint(0, depth - 1)) for _ in arguments]
        if parts:
            parts[rng.randrange(len(parts))] = draw(rng, depth - 1)
        try:
            value = compute(name, *(part.value for part in parts))
        except (ArithmeticError, ValueError):
            continue
        if abs(value) <= LARGEST:
            call = {"name": name, "arguments": dict(zip(arguments, (part.value for part in parts), strict=True))}
            steps = (step for part in parts for step in part.steps)
            return Expression(form.format(*(part.text for part in parts)), value, (*steps, call))
