"""The calendar in a model's text: the first JSON list of objects, whatever stands around it.

The text is read a fixed number of times, however it is made.
"""

from __future__ import annotations

import json
import re
from typing import Any

_LIST = re.compile(r"\[\s*\{")
_BRACKET = re.compile(r"[\[\]]")
_DECODER = json.JSONDecoder()

#: How often a list may be begun and left unfinished. Each failed reading costs a walk through the text before it.
BEGINNINGS = 32


def calendar_in(text: str) -> list[Any] | None:
    """The entries as the model wrote them; None where there is no list, or the first one is not JSON.

    A list that is begun and never closed does not count as one: a model may begin again.
    """
    position = 0
    for _ in range(BEGINNINGS):
        found = _LIST.search(text, position)
        if found is None:
            return None
        try:
            entries: list[Any] = _DECODER.raw_decode(text, found.start())[0]
            return entries
        except json.JSONDecodeError as error:
            bracket = _BRACKET.search(text, found.start() + 1)
            if bracket is not None and bracket[0] == "]":
                return None
            position = error.pos
        except (ValueError, RecursionError):  # a number of thousands of digits, or thousands of braces
            return None
    return None
