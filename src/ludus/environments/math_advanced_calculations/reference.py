"""The tools and the verifier of the reference, with their errors, for `compat: true`. The README lists the errors.

The reference's tools share one set of optional arguments, drop null arguments, and show the model Python's message if
the others do not fit. Its verifier trusts every output in the transcript.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

from ludus.environments.math_advanced_calculations.operations import OPERATIONS
from ludus.response import Response
from ludus.tools import Tool

_COMPLEX = (
    "1 validation error for MultiVerseMathHardResponse\nsolution\n  Input should be a valid number "
    "[type=float_type, input_value={value}, input_type=complex]\n"
    "    For further information visit https://errors.pydantic.dev/2.13/v/float_type"
)


async def reference_call(owner: object, name: str, arguments: str) -> str:
    """The output that the model sees when the reference runs a tool."""
    return await _tool(name).run(owner, arguments, lenient=True)


def reference_reward(truth: Any, response: Response) -> float:
    """1 if every value of the truth is the solution in some output. Raises where the reference raises."""
    solutions = list(solutions_in(response))
    return float(all(value in solutions for value in json.loads(truth)))


def solutions_in(response: Response, *, without_call: bool = False) -> Iterator[float | None]:
    """The solution in each tool output of a transcript, or None for an output without one.

    `without_call` takes only the outputs that answer no call of the transcript.
    """
    skipped = {call.get("call_id") for call in response.function_calls} if without_call else set()
    for item in response.output:
        if item.get("type") == "function_call_output" and item.get("call_id") not in skipped:
            try:
                yield float(json.loads(item["output"])["solution"])
            except (LookupError, TypeError, ValueError, OverflowError, RecursionError):
                yield None


@cache
def _tool(name: str) -> Tool:
    operation = OPERATIONS[name]

    async def run(
        self: object,
        a: float | None = None,
        b: float | None = None,
        radians: float | None = None,
        base: float | None = None,
    ) -> dict[str, Any]:
        arguments = {"a": a, "b": b, "radians": radians, "base": base}
        return _result(operation, {key: value for key, value in arguments.items() if value is not None})

    return Tool(run, name)


def _result(operation: Callable[..., float | complex], arguments: dict[str, float]) -> dict[str, Any]:
    try:
        result = operation(**arguments)
    except (ArithmeticError, TypeError, ValueError) as error:
        return {"detail": str(error)}
    if not isinstance(result, complex):
        return {"solution": result}
    shown = repr(result)
    return {"detail": _COMPLEX.format(value=shown if len(shown) <= 50 else f"{shown[:25]}...{shown[-24:]}")}
