"""Sums without end, worked out by the same operations as the tools: the same seed and settings give the same rows.

A row brings its own solution, the calls in the order in which they have to be made.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

from ludus.environments.math_advanced_calculations.operations import solved
from ludus.errors import UserError

Row = dict[str, Any]
MOST = 6

#: Results beyond this are drawn again: nobody learns from copying twenty digits.
LARGEST = 1e6

#: How each operation is written, and what its arguments are called.
WRITTEN = {
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
INNER = [name for name, (_, arguments) in WRITTEN.items() if arguments]

QUESTION = (
    "Numbers behave in their own way here: not even adding gives what you would expect, and only the tools know the "
    "rules. Work out {sums}. Take every single step with a tool, the innermost first, and use what it returns as it "
    "is, with all of its digits. Angles are in radians, and log(x, y) is the logarithm of x to the base y."
)


@dataclass(frozen=True)
class Sum:
    """A number, or an operation on other sums. `steps` are the calls that lead to its value, in order."""

    text: str
    value: float
    steps: tuple[Row, ...] = ()


def stream(seed: int, *, depth: int = 4, breadth: int = 4) -> Iterator[Row]:
    """Rows for ever, of at most `breadth` sums that are nested at most `depth` deep.

    stream(7)
    stream(7, depth=2, breadth=1)
    """
    for name, value in (("depth", depth), ("breadth", breadth)):
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MOST:
            raise UserError(f"data.{name}={value!r:.40} must be a whole number from 1 to {MOST}")
    return (row(random.Random(f"arithmetic/{seed}/{number}"), number, depth, breadth) for number in count())


def row(rng: random.Random, number: int, depth: int, breadth: int) -> Row:
    """A few sums, one of which is as deep as the row says: two operations at least, where that is allowed."""
    deep = rng.randint(min(2, depth), depth)
    sums = [draw(rng, deep), *(draw(rng, rng.randint(1, deep)) for _ in range(rng.randint(0, breadth - 1)))]
    rng.shuffle(sums)
    *others, last = (each.text for each in sums)
    asked = f"{', '.join(others)} and {last}" if others else last
    return {
        "id": number,
        "responses_create_params": {
            "input": [{"role": "user", "content": QUESTION.format(sums=asked)}],
            "parallel_tool_calls": False,
        },
        "ground_truth": json.dumps([each.value for each in sums]),
        "depth": deep,
        "breadth": len(sums),
        "solution": [step for each in sums for step in each.steps],
    }


def draw(rng: random.Random, depth: int) -> Sum:
    """A sum that is nested exactly so deep, and can be worked out."""
    if depth == 0:
        number = rng.randint(1, 12)
        return Sum(str(number), float(number))
    while True:
        name = rng.choice(INNER if depth > 1 else list(WRITTEN))
        form, arguments = WRITTEN[name]
        parts = [draw(rng, rng.randint(0, depth - 1)) for _ in arguments]
        if parts:
            parts[rng.randrange(len(parts))] = draw(rng, depth - 1)
        try:
            value = solved(name, *(part.value for part in parts))
        except (ArithmeticError, ValueError):
            continue
        if abs(value) <= LARGEST:
            call = {"name": name, "arguments": dict(zip(arguments, (part.value for part in parts), strict=True))}
            steps = (step for part in parts for step in part.steps)
            return Sum(form.format(*(part.text for part in parts)), value, (*steps, call))
