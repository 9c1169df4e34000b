"""How qualification answers mathematical problems: in a box. The library verifies alone unless a judge is set.

The library compares values, so other notations of the value are right and nearby values are wrong.
"""

from __future__ import annotations

import re
from typing import Any

_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_DELIMITERS = re.compile(r"^\s*(?:\$|\\\(|\\\[)|(?:\$|\\\)|\\\])\s*$")


def gold(task: Any) -> str:
    """The expected answer without the LaTeX delimiters around it."""
    return _DELIMITERS.sub("", task.expected_answer).strip()


def answer(task: Any, text: str) -> str:
    """An answer in a box."""
    return rf"So the answer is \boxed{{{text}}}."


def preserving(task: Any) -> dict[str, Any]:
    """The same value in other notations."""
    text = gold(task)
    texts = {"spaces": f"  {text}  ", "thin_space": rf"{text}\,", "display": rf"\displaystyle {text}"}
    scripts = {name: answer(task, written) for name, written in texts.items()}
    scripts |= {"dollars": rf"Thus $\boxed{{{text}}}$", "brackets": rf"\[\boxed{{{text}}}\]"}
    scripts["changed_mind"] = rf"First I had \boxed{{12345}}. No. {answer(task, text)}"
    if _NUMBER.fullmatch(text):
        value = float(text)
        forms = {"decimal": f"{value:.1f}", "fraction": rf"\frac{{{2 * value:g}}}{{2}}", "sum": f"{value - 1:g}+1"}
        scripts |= {name: answer(task, written) for name, written in forms.items()}
    if re.fullmatch(r"\d+, \d+", text):
        scripts["order"] = answer(task, ", ".join(reversed(text.split(", "))))
    return scripts


def breaking(task: Any) -> dict[str, Any]:
    """Answers with other values than the expected one."""
    text = gold(task)
    texts = {"plus_one": f"{text}+1", "times": rf"2\left({text}\right)", "hedged": rf"{text} \text{{ or }} 12345"}
    texts |= {"listed": f"{text}, 12345", "not_equal": rf"\neq {text}"}
    if _NUMBER.fullmatch(text):
        value = float(text)
        texts |= {"off_by_one": f"{value + 1:g}", "sign": f"{-value:g}", "ten_times": f"{10 * value:g}"}
        texts |= {"near": f"{value + 0.01:g}", "digit": f"{text}1", "power": f"{text}^2"}
    if text.startswith("("):
        return {"open": answer(task, text.replace("(", "[", 1)), "sign": answer(task, text.replace("3", "-3"))}
    return {name: answer(task, written) for name, written in texts.items()}
