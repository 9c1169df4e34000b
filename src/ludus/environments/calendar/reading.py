"""Find the calendar in a model's text: the first JSON list of objects, with any text around it.

Hostile text cannot make this slow: the text is read at most `BEGINNINGS` times.
"""

from __future__ import annotations

import json
import re
from typing import Any

_LIST = re.compile(r"\[\s*\{")
_BRACKET = re.compile(r"[\[\]]")
_DECODER = json.JSONDecoder()

#: How many unfinished lists may come first. Each failed parse costs a pass over the text before it.
BEGINNINGS = 32


def calendar_in(text: str) -> list[Any] | None:
    """The entries as the model wrote them; None if there is no list, or the first closed list is not JSON.

    A list that is opened and never closed is skipped: a model may start over.
    """
    position = 0
    for _ in range(BEGINNINGS):
        opening = _LIST.search(text, position)
        if opening is None:
            return None
        try:
            entries: list[Any] = _DECODER.raw_decode(text, opening.start())[0]
            return entries
        except json.JSONDecodeError as error:
            bracket = _BRACKET.search(text, opening.start() + 1)
            if bracket is not None and bracket[0] == "]":
                return None
            position = error.pos
        except (ValueError, RecursionError):  # a number with thousands of digits, or thousands of nested braces
            return None
    return None
