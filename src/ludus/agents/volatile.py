"""Text that differs each time a program runs although nothing else does: clock readings, and ids of the program's own.

A restarted program gets the answers that the model gave before, while it asks the same. Two requests ask the same if
they are equal, or if they differ in volatile text only. Volatile are:

- a date with a time of day, as in ISO 8601, RFC 2822, `date` and `ls -l`;
- a measured duration: a number with a decimal point, and the unit seconds or milliseconds;
- what the program's declaration names (`volatile`), such as the number of a process in the frame of an output.

Only what the program added counts: outputs of tools and messages that are not the model's. Any other number, id or word
is content, and a request that differs in it is another one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from ludus.agents.echoes import content_of
from ludus.response import Item, is_reply

_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_TIME = r"\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)?"
#: No repetition is open-ended, so that hostile text takes no longer than other text.
CLOCK = (
    rf"(?<!\d)\d{{4}}-\d\d-\d\d[T ]{_TIME}(?:Z| ?[+-]\d\d:?\d\d)?",
    rf"(?<!\d)\d\d? {_MONTH} \d{{4}} {_TIME}(?: (?:GMT|UTC|[+-]\d{{4}}))?",
    rf"\b(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) )?{_MONTH} [ \d]\d {_TIME}(?: [A-Z]{{3,4}})?(?: \d{{4}}\b)?",
    r"(?<![\d.])(?:\d{1,6}m)?\d{1,9}\.\d{1,9} ?(?:s|sec|secs|seconds|ms|milliseconds)\b",
)

_MASK = "\0"


class VolatileText:
    """Knows the volatile text of one program: clock readings, and what matches `patterns`."""

    def __init__(self, patterns: Iterable[str] = ()) -> None:
        self._patterns = [re.compile(pattern) for pattern in (*patterns, *CLOCK)]

    def content(self, item: Item) -> tuple[Any, ...]:
        """What an item says, without its volatile text. The model's own items keep all of their text."""
        content = content_of(item)
        if not is_reply(item):
            return content
        return tuple(self._masked(part) if isinstance(part, str) else part for part in content)

    def _masked(self, text: str) -> str:
        for number, pattern in enumerate(self._patterns):
            text = pattern.sub(f"{_MASK}{number}{_MASK}", text)
        return text
