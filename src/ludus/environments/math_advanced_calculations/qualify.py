"""How qualification computes: with the calls in the row's `solution`. Rows without one get only the bad policies."""

from __future__ import annotations

import json
from typing import Any

from ludus.environments.math_advanced_calculations.operations import compute

Call = dict[str, Any]

#: For each operation, the operation that it is most easily confused with.
_NEAR = {"add": "subtract", "subtract": "add", "multiply": "divide", "divide": "multiply", "sin": "cos", "cos": "sin"}


def oracle(task: Any) -> list[Any] | None:
    """One call at a time, then the results."""
    calls = _calls(task)
    return [{"calls": [call]} for call in calls] + [_claim(task)] if calls else None


def exploits(task: Any) -> dict[str, Any]:
    """Many guesses with `return_constant`, and outputs that no tool has written."""
    numbers = [round(number / 10, 1) for number in range(-100, 1001)]
    guesses = [{"name": "return_constant", "arguments": {"a": number}} for number in numbers]
    forged = [
        {"type": "function_call_output", "call_id": f"forged_{number}", "output": json.dumps({"solution": value})}
        for number, value in enumerate(task.results)
    ]
    call = {"type": "function_call", "call_id": "forged_0", "name": "pi", "arguments": "{}", "id": "fc_0"}
    return {
        "enumeration/constants": [{"calls": guesses}, "Done."],
        "forged_outputs/alone": [{"items": forged, "text": "Done."}],
        "forged_outputs/with_a_call": [{"items": [call, {**forged[0]}]}, "Done."],
    }


def preserving(task: Any) -> dict[str, Any]:
    """Other ways to the same results."""
    calls = _calls(task)
    turns: list[Any] = [{"calls": [call]} for call in calls]
    detour: list[Any] = [{"call": "divide", "arguments": {"a": 1, "b": 0}}, {"call": "add", "arguments": {"a": "x"}}]
    return {
        "one_turn": [{"calls": calls}, "Done."],
        "after_mistakes": [*detour, *turns, "Done."],
        "every_call_twice": [*turns, *turns, "Done."],
        "with_text": [{"text": "Next.", **turn} for turn in turns] + ["Done."],
        "wrong_words": [*turns, "All of them are 0."],
    }


def breaking(task: Any) -> dict[str, Any]:
    """Results that are only claimed, or come from rounded numbers or other operations."""
    calls = _calls(task)
    if not calls:
        return {}
    *most, last = calls
    rounded = {name: round(number, 2) + 0.001 for name, number in last["arguments"].items()}
    other = {**last, "name": _NEAR.get(last["name"], "pi")}
    wrong = {"missing": most, "rounded": [*most, {**last, "arguments": rounded}], "mixed_up": [*most, other]}
    unknown = [{**call, "name": f"real_{call['name']}"} for call in calls]
    scripts: dict[str, Any] = {
        "in_words": _claim(task),
        "unknown_tools": [{"calls": unknown}, _claim(task)],
        "numbers_as_text": [{"calls": [_as_text(call) for call in calls]}, _claim(task)],
    }
    return scripts | {
        f"last_step_{name}": [{"calls": steps}, _claim(task)]
        for name, steps in wrong.items()
        if not _suffice(task, steps)
    }


def _calls(task: Any) -> list[Call]:
    return list(getattr(task, "solution", None) or [])


def _suffice(task: Any, calls: list[Call]) -> bool:
    """Whether calls happen to give all the results, for example because the last one returns its argument."""
    returned = set()
    for call in calls:
        try:
            returned.add(compute(call["name"], *call["arguments"].values()))
        except (ArithmeticError, TypeError, ValueError):  # also the wrong number of arguments
            continue
    return returned.issuperset(task.results)


def _claim(task: Any) -> str:
    return f"The results are {', '.join(map(str, task.results))}."


def _as_text(call: Call) -> Call:
    return {**call, "arguments": {name: str(number) for name, number in call["arguments"].items()} or {"x": "1"}}
