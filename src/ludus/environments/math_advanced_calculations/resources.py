"""Sums to be worked out with tools whose operations are not quite the ones that their names promise.

What counts is that a tool has returned every result that the row asks for. Nobody can know the results without the
tools, so what the model says in the end is not read.
"""

from __future__ import annotations

import json
import math
from typing import Any

from pydantic import ValidationInfo, field_validator

import ludus
from ludus import Failure, Resources, Response, Verdict, tool
from ludus.environments.math_advanced_calculations.operations import solved
from ludus.environments.math_advanced_calculations.reference import reference_call, reference_reward, solutions_in
from ludus.graders.rows import Integer

Solution = dict[str, Any]

#: Calls that are always free, and how many there may be for each that a row can need. Beyond, it is guessing.
FREE_CALLS = 16
CALLS_FOR_EACH = 2
DEEPEST = 20


class AlteredArithmetic(Resources):
    """Eleven tools, and the results that they have returned so far."""

    class Task(ludus.Task):
        ground_truth: str | list[Any]
        depth: Integer = 4

        @property
        def results(self) -> list[float]:
            """What the tools have to return. Raises `ValueError` where the row does not say."""
            return results_of(self.ground_truth)

        @property
        def patience(self) -> int:
            """How many calls may be made: a sum of this depth has no more than 2^depth operations."""
            needed = len(self.results) << max(0, min(self.depth, DEEPEST))
            return FREE_CALLS + CALLS_FOR_EACH * needed

        @field_validator("ground_truth")
        @classmethod
        def _can_be_reached(cls, truth: str | list[Any], info: ValidationInfo) -> str | list[Any]:
            if not (info.context or {}).get("compat"):
                results_of(truth)
            return truth

    def __init__(self, config: Any = None, shared: Any = None) -> None:
        super().__init__(config, shared)
        self.returned: list[float] = []

    @tool
    async def add(self, a: float, b: float) -> Solution:
        """Add two numbers; a + b.

        Args:
            a: First summand
            b: Second summand
        """
        return self._solution("add", a, b)

    @tool
    async def subtract(self, a: float, b: float) -> Solution:
        """Subtract one number from another; a - b.

        Args:
            a: What to subtract from
            b: What to subtract
        """
        return self._solution("subtract", a, b)

    @tool
    async def multiply(self, a: float, b: float) -> Solution:
        """Multiply two numbers; a * b.

        Args:
            a: First factor
            b: Second factor
        """
        return self._solution("multiply", a, b)

    @tool
    async def divide(self, a: float, b: float) -> Solution:
        """Divide one number by another; a / b.

        Args:
            a: What to divide
            b: What to divide it by
        """
        return self._solution("divide", a, b)

    @tool
    async def power(self, a: float, b: float) -> Solution:
        """Raise a number to a power; a ** b.

        Args:
            a: Base
            b: Exponent
        """
        return self._solution("power", a, b)

    @tool
    async def log(self, a: float, base: float) -> Solution:
        """Take the logarithm of a number; log(a, base).

        Args:
            a: What to take the logarithm of
            base: Base of the logarithm
        """
        return self._solution("log", a, base)

    @tool
    async def sin(self, radians: float) -> Solution:
        """The sine of an angle.

        Args:
            radians: The angle in radians
        """
        return self._solution("sin", radians)

    @tool
    async def cos(self, radians: float) -> Solution:
        """The cosine of an angle.

        Args:
            radians: The angle in radians
        """
        return self._solution("cos", radians)

    @tool
    async def pi(self) -> Solution:
        """The value that pi has here."""
        return self._solution("pi")

    @tool
    async def negate(self, a: float) -> Solution:
        """Negate a number; -a.

        Args:
            a: What to negate
        """
        return self._solution("negate", a)

    @tool
    async def return_constant(self, a: float) -> Solution:
        """Return a number as it is.

        Args:
            a: What to return
        """
        return self._solution("return_constant", a)

    async def call(self, name: str, arguments: str) -> str:
        if name not in self.toolbox:
            return '{"detail":"Function not found"}'
        if self.config.compat:
            return await reference_call(self, name, arguments)
        return await super().call(name, arguments)

    async def verify(self, task: Task, response: Response) -> Verdict:
        if self.config.compat:
            return Verdict(_reference_reward(task, response))
        results = {*task.results}
        if not results:
            return Verdict(0.0, mask="the row asks for no result")
        missing = sorted(results.difference(self.returned))
        guessing = len(self.returned) > task.patience
        # An output that answers no call came from nobody knows where: it counts, but nothing is learned from it.
        unasked = bool(missing) and {*missing} <= {*solutions_in(response, unasked=True)}
        return Verdict(
            float((unasked or not missing) and not guessing),
            calls=len(self.returned),
            missing=missing,
            guessing=guessing,
            mask="a result stands in an output that answers no call" if unasked else None,
        )

    def _solution(self, name: str, *numbers: float) -> Solution:
        try:
            result = solved(name, *numbers)
        except (ArithmeticError, ValueError) as error:
            return {"detail": str(error)}
        self.returned.append(result)
        return {"solution": result}


def results_of(truth: str | list[Any]) -> list[float]:
    """The numbers that a row asks for. Raises `ValueError` if they are none that a tool could return."""
    try:
        values = json.loads(truth) if isinstance(truth, str) else truth
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{truth!r:.60} is not JSON: {error}") from None
    if not isinstance(values, list):
        raise ValueError(f"{truth!r:.60} must be a list of numbers")
    return [_finite(value) for value in values]


def _finite(value: Any) -> float:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        try:
            if math.isfinite(value):
                return float(value)
        except OverflowError:
            pass
    raise ValueError(f"{value!r:.60} is no number that a tool could return")


def _reference_reward(task: AlteredArithmetic.Task, response: Response) -> float:
    try:
        return reference_reward(task.ground_truth, response)
    except (TypeError, ValueError, RecursionError) as error:
        raise Failure("bad_row", f"ground_truth: {error}") from None
