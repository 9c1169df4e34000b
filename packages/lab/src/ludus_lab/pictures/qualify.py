"""How qualification answers questions about pictures: the known answers, and answers that are a little off."""

from __future__ import annotations

from typing import Any

#: What guessing earns: one of nine numbers, of five names, of ninety values; a circle of 10 pixels in the picture.
_CHANCE = {"circles": 1 / 9, "point": 0.01, "chart": 1 / 5, "table": 1 / 90}


def answer(task: Any, text: str) -> str:
    """A text between the tags."""
    return f"I looked closely. <answer>{text}</answer>"


def oracle(task: Any) -> str:
    """The known answer."""
    return answer(task, task.expected_answer)


def chance(task: Any) -> float:
    """What guessing earns."""
    return _CHANCE[task.kind]


def preserving(task: Any) -> dict[str, Any]:
    """The known answer in other forms."""
    gold = task.expected_answer
    texts = {"spaces": f"  {gold}\n", "upper": gold.upper(), "lower": gold.lower()}
    if task.kind == "point":
        x, y = map(int, gold.split(", "))
        texts |= {"near": f"{x + 5}, {y - 5}", "brackets": f"({x}, {y})", "decimals": f"{x}.0,{y}.5"}
    scripts = {name: answer(task, text) for name, text in texts.items()}
    return {**scripts, "second_thought": f"<answer>12345</answer> No: {oracle(task)}"}


def breaking(task: Any) -> dict[str, Any]:
    """Answers that are off, several answers, and the right one in the wrong place."""
    gold = task.expected_answer
    texts = {"both": f"{gold} or 12", "sentence": f"It is {gold}.", "doubled": f"{gold}{gold}", "empty": ""}
    if task.kind == "point":
        x, y = map(int, gold.split(", "))
        texts |= {
            "far": f"{x + 11}, {y}",
            "swapped": f"{y + 300}, {x}",
            "negative": f"-{x}, {y}",
            "infinite": "inf, nan",
        }
    elif gold.isdecimal():
        texts |= {"one_more": str(int(gold) + 1), "one_less": str(int(gold) - 1), "zero_before": f"0{gold}"}
    scripts = {name: answer(task, text) for name, text in texts.items()}
    return {**scripts, "no_tags": gold, "unclosed": f"<answer>{gold}", "first": f"{oracle(task)} or <answer>?</answer>"}
