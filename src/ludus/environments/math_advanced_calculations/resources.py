"""Expressions to compute with tools whose operations differ from their names.

The reward is earned if the tools returned every result that the row asks for. The results cannot be known without the
tools, so the model's text is not read.
"""

from __future__ import annotations

import json
import math
from typing import Any

from pydantic import ValidationInfo, field_validator

import ludus
from ludus import Failure, Resources, Response, Verdict, tool
from ludus.environments.math_advanced_calculations.operations import compute
from ludus.environments.math_advanced_calculations.reference import reference_call, reference_reward, solutions_in
from ludus.graders.rows import Integer

Solution = dict[str, Any]

#: More than FREE_CALLS + CALLS_FOR_EACH * (the most operations the row can need) calls count as guessing.
FREE_CALLS = 16
CALLS_FOR_EACH = 2
DEEPEST = 20


class AlteredArithmetic(Resources):
    """Eleven tools, and the results that they have returned in this rollout."""

    class Task(ludus.Task):
        ground_truth: str | list[Any]
        depth: Integer = 4

        @property
        def results(self) -> list[float]:
            """The numbers that the tools have to return. Raises `ValueError` if `ground_truth` cannot be read."""
            return results_of(self.ground_truth)

        @property
        def max_calls(self) -> int:
            """The number of calls beyond which a rollout is guessing: an expression has at most 2^depth operations."""
            needed = len(self.results) << max(0, min(self.depth, DEEPEST))
            return FREE_CALLS + CALLS_FOR_EACH * needed

        @field_validator("ground_truth")
        @classmethod
        def _check_ground_truth(cls, truth: str | list[Any], info: ValidationInfo) -> str | list[Any]:
            if not (info.context or {}).get("compat"):
                results_of(truth)
            return truth

    def __init__(self, config: Any = None, shared: Any = None) -> None:
        super().__init__(config, shared)
        self.returned: list[float] = []

    async def open(self, task: Task) -> None:
        if not self.config.compat and not task.results:
            raise Failure("bad_row", "ground_truth asks for no result, so no answer could be right")

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
        await self.open(task)
        results = {*task.results}
        missing = sorted(results.difference(self.returned))
        guessing = len(self.returned) > task.max_calls
        # An output that answers no call may be forged: it counts, but the rollout is masked.
        forged = bool(missing) and {*missing} <= {*solutions_in(response, without_call=True)}
        return Verdict(
            float((forged or not missing) and not guessing),
            calls=len(self.returned),
            missing=missing,
            guessing=guessing,
            mask="a result stands in an output that answers no call" if forged else None,
        )

    def _solution(self, name: str, *numbers: float) -> Solution:
        try:
            result = compute(name, *numbers)
        except (ArithmeticError, ValueError) as error:
            return {"detail": str(error)}
        self.returned.append(result)
        return {"solution": result}


def results_of(truth: str | list[Any]) -> list[float]:
    """The numbers that a row asks for. Raises `ValueError` if a tool could not return one of them."""
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
    raise ValueError(f"{value!r:.60} is not a number that a tool could return")


def _reference_reward(task: AlteredArithmetic.Task, response: Response) -> float:
    try:
        return reference_reward(task.ground_truth, response)
    except (TypeError, ValueError, RecursionError) as error:
        raise Failure("bad_row", f"ground_truth: {error}") from None
