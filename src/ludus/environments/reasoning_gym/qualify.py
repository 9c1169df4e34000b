"""How qualification answers puzzles: between tags, with the row's answer, or with an example solution."""

from __future__ import annotations

import json
from typing import Any

_EXAMPLES = ("example_answer", "possible_answer", "example_correct_answer")
_CHOICES = ("true", "false", "yes", "no")


def gold(task: Any) -> str | None:
    """The row's answer, or a solution that the library found while it made the puzzle."""
    if task.answer is not None:
        return str(task.answer)
    solution = next((task.metadata[name] for name in _EXAMPLES if task.metadata.get(name)), None)
    return solution if solution is None or isinstance(solution, str) else json.dumps(solution)


def answer(task: Any, text: str) -> str:
    """An answer between tags."""
    return f"<answer>{text}</answer>"


def chance(task: Any) -> float:
    """What guessing earns: 0.5 if there are two possible answers, 0.2 if the answer is one character."""
    key = (task.answer or "").lower()
    return 0.5 if key in _CHOICES else 0.2 if len(key) == 1 else 0.0


def preserving(task: Any) -> dict[str, Any]:
    """The right answer in every place where the verifier looks for it."""
    text = gold(task)
    if text is None:
        return {}
    boxed = rf"So it is \boxed{{{text}}}."
    forms = {"spaces": f"<answer>  {text} </answer>", "boxed": boxed, "alone": f" {text}\n"}
    return forms | {"after_prose": f"I put it in <answer> as told.\n{answer(task, text)}"}
