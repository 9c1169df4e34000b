"""How qualification answers short questions: in the place where the row's extraction mode looks.

The verifier accepts other spellings and numbers within one percent, so the wrong numbers here are further off.
"""

from __future__ import annotations

import re
from typing import Any

_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def answer(task: Any, text: str) -> str:
    """An answer in the place where the row's mode looks."""
    forms = {"boxed": r"So: \boxed{%s}", "final_answer": "I thought about it.\nAnswer: %s", "last_line": "Well.\n%s"}
    return forms.get(task.extraction_mode, "%s").replace("%s", text)


def preserving(task: Any) -> dict[str, Any]:
    """The expected answer in another spelling."""
    gold = task.expected_answer
    texts = {"spaces": f"  {gold} "}
    if not task.case_sensitive:
        texts |= {"upper": gold.upper(), "lower": gold.lower(), "quotes": f'"{gold}"', "bold": f"**{gold}**"}
        texts |= {"full_stop": f"{gold}.", "latex": rf"\text{{{gold}}}", "dollars": f"${gold}$"}
        if _NUMBER.fullmatch(gold):
            texts |= {"decimal": f"{float(gold):.2f}", "thousands": f"{float(gold):,g}"}
    return {name: answer(task, text) for name, text in texts.items()}


def breaking(task: Any) -> dict[str, Any]:
    """Answers with another meaning."""
    gold = task.expected_answer
    texts = {"negation": f"not {gold}", "hedged": f"{gold} or Atlantis", "doubled": f"{gold}{gold}", "nothing": "?"}
    texts |= {"around": f"x{gold}x"}
    if _NUMBER.fullmatch(gold):
        value = float(gold)
        texts |= {"sign": f"{-value:g}", "ten_times": f"{10 * value:g}", "off": f"{1.1 * value + 1:g}"}
        texts |= {"digit": f"{gold}1", "range": f"0-{gold}", "exponent": f"{gold}e3", "pair": f"{gold}, {value + 1:g}"}
    elif len(gold) > 3:
        texts |= {"cut_short": gold[:-2], "letter": f"{gold[:-1]}q"}
    if task.case_sensitive:
        texts["case"] = gold.swapcase()
    return {name: answer(task, text) for name, text in texts.items()}
