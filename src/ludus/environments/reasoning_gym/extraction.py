r"""Extracts the final answer from a text: the last `<answer>`, else the first `\boxed{}`, else the whole text.

The search takes time proportional to the text's length, whatever the text.
"""

from __future__ import annotations

import re

_OPEN, _CLOSE, _BOX = "<answer>", "</answer>", "\\boxed{"
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)


def final_answer(text: str, compat: bool = False) -> str:
    r"""The answer without surrounding whitespace; may be empty.

    final_answer(r"Hm, <answer>3</answer>. No: <answer>4</answer>")   # '4'
    final_answer(r"It is \boxed{\frac{1}{2}}")                        # '\\frac{1}{2}'

    With `compat` a tag that is only mentioned begins the answer, and a box ends at its first closing brace.
    """
    for find in (_tagged, _boxed):
        answer = find(text, compat)
        if answer is not None:
            return answer.strip()
    return text.strip()


def _tagged(text: str, compat: bool) -> str | None:
    """The text between the last pair of tags."""
    span = None
    start = text.find(_OPEN)
    while start >= 0:
        end = text.find(_CLOSE, start)
        if end < 0:
            break
        span = (start if compat else text.rfind(_OPEN, start, end)) + len(_OPEN), end
        start = text.find(_OPEN, end)
    return text[slice(*span)] if span else None


def _boxed(text: str, compat: bool) -> str | None:
    """The content of the first box that is not empty."""
    start = text.find(_BOX)
    while start >= 0:
        start += len(_BOX)
        end = text.find("}", start)
        if end < 0:
            return None
        if end > start:
            return text[start : end if compat else _closing(text, start, end)]
        start = text.find(_BOX, end)
    return None


def _closing(text: str, start: int, first: int) -> int:
    """The position of the brace that matches the one before `start`, or `first` if there is none."""
    depth = 1
    for token in _BRACE.finditer(text, start):
        depth += {"{": 1, "}": -1}.get(token[0], 0)
        if depth == 0:
            return token.start()
    return first
