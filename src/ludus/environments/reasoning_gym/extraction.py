r"""Where in a text the final answer stands: in the last `<answer>`, else in the first `\boxed{}`, else it is the text.

The text is read a fixed number of times, whatever it holds.
"""

from __future__ import annotations

import re

_OPEN, _CLOSE, _BOX = "<answer>", "</answer>", "\\boxed{"
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)


def final_answer(text: str, compat: bool = False) -> str:
    r"""The answer without outer blanks; empty where there is none.

    final_answer(r"Hm, <answer>3</answer>. No: <answer>4</answer>")   # '4'
    final_answer(r"It is \boxed{\frac{1}{2}}")                        # '\\frac{1}{2}'

    With `compat` a tag that is only mentioned begins the answer, and a box ends at its first closing brace.
    """
    for find in (_tagged, _boxed):
        found = find(text, compat)
        if found is not None:
            return found.strip()
    return text.strip()


def _tagged(text: str, compat: bool) -> str | None:
    """What stands between the tags of the last pair."""
    found = None
    start = text.find(_OPEN)
    while start >= 0:
        end = text.find(_CLOSE, start)
        if end < 0:
            break
        found = (start if compat else text.rfind(_OPEN, start, end)) + len(_OPEN), end
        start = text.find(_OPEN, end)
    return text[slice(*found)] if found else None


def _boxed(text: str, compat: bool) -> str | None:
    """What stands in the first box that is not empty."""
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
    """Where the brace that was opened before `start` is closed; at the first closing brace where it never is."""
    depth = 1
    for token in _BRACE.finditer(text, start):
        depth += {"{": 1, "}": -1}.get(token[0], 0)
        if depth == 0:
            return token.start()
    return first
