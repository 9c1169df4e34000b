"""How qualification answers: in a box, after computing with the tool."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

from ludus.environments.math_with_code.answers import undressed, value_of

settings = {"resources.max_execution_time": 0.5}


def gold(task: Any) -> str:
    """The expected result."""
    return str(task.expected_result)


def answer(task: Any, text: str) -> str:
    """An answer in a box."""
    return rf"So it is \boxed{{{text}}}."


def program(task: Any, source: str) -> Any:
    """Run the program with the tool, then answer with what it printed."""
    return lambda request: _turn(request, f"{source}\nprint(cheat())")


def preserving(task: Any) -> dict[str, Any]:
    """The right answer in another dress, and after computing."""
    text = undressed(gold(task))
    texts = {"spaces": f"  {text} ", "dollars": f"${text}$", "parentheses": rf"\({text}\)", "text": rf"\text{{{text}}}"}
    ways: dict[str, Any] = {name: answer(task, written) for name, written in texts.items()}
    number = value_of(text)
    if number is not None:
        ways["decimal"] = answer(task, f"{number:.7f}")
    ways["changed_mind"] = rf"First \boxed{{12345}}. No. {answer(task, text)}"
    ways["computed"] = [{"call": "execute_python", "arguments": {"code": f"print({text!r})"}}, answer(task, text)]
    return ways


def breaking(task: Any) -> dict[str, Any]:
    """Other answers, and the right answer where it does not count."""
    text = undressed(gold(task))
    texts = {"longer": f"1{text}", "listed": f"{text}, 12345", "not_equal": rf"\neq {text}", "negative": f"-{text}"}
    ways: dict[str, Any] = {name: answer(task, written) for name, written in texts.items()}
    number = value_of(text)
    if number is not None:
        ways["near"] = answer(task, f"{number + max(Decimal(1), abs(number)) / 100:.7f}")
    printed = {"call": "execute_python", "arguments": {"code": rf"print(r'\boxed{{{text}}}')"}}
    return ways | {"only_printed": [printed, "Done."], "without_box": f"It is {text}."}


def _turn(request: Any, code: str) -> Any:
    if request.turn == 0:
        return {"call": "execute_python", "arguments": {"code": code}}
    output = next((item["output"] for item in request.input if item.get("type") == "function_call_output"), "{}")
    try:
        printed = json.loads(output)
    except ValueError:
        printed = {}
    return rf"\boxed{{{printed.get('stdout') or printed.get('result') or output}}}"
