"""Whether the arguments of a function call mean what was expected.

Numbers, booleans and single words must be right; texts of several words may be worded differently, as long as they
share enough words. A short phrase with one word exchanged names another thing, though, and an SQL statement of another
kind does another thing.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass
from typing import Any, Literal

#: How an argument differs: its type, the keys of an object, the length of a list, or what it says.
Difference = Literal["type", "keys", "length", "value"]

#: In phrases up to this many words, every word counts.
_SHORT_PHRASE = 6
_STATEMENT = re.compile(
    r"\s*(?:(select)\b.*\bfrom\b|(insert)\s+into\b|(update)\b.*\bset\b|(delete)\s+from\b"
    r"|(drop|create|alter|truncate)\s+(?:table|view|index|database|schema)\b)",
    re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True)
class Comparison:
    """How strictly values are compared.

    Comparison().difference({"n": 2}, {"n": 2})     # None
    Comparison().difference({"n": 2}, {"n": "2"})   # 'type'
    """

    #: Shared words over the words of both texts together: half is all of them.
    word_overlap: float = 0.1
    #: Numbers with a fraction are equal when they are closer than this.
    tolerance: float = 1e-6
    #: Compare as Python does: types as `isinstance` sees them, and words by their overlap alone.
    literal: bool = False

    def difference(self, expected: Any, actual: Any) -> Difference | None:
        """The first difference of a value from the expected one, or None."""
        if not self._same_type(expected, actual):
            return "type"
        if isinstance(expected, dict):
            if expected.keys() != actual.keys():
                return "keys"
            pairs = [(value, actual[key]) for key, value in expected.items()]
        elif isinstance(expected, list):
            if len(expected) != len(actual):
                return "length"
            pairs = list(zip(expected, actual, strict=True))
        else:
            return None if self._same_leaf(expected, actual) else "value"
        return next((found for pair in pairs if (found := self.difference(*pair))), None)

    def _same_type(self, expected: Any, actual: Any) -> bool:
        if self.literal:
            return isinstance(actual, type(expected))
        return type(expected) is type(actual)

    def _same_leaf(self, expected: Any, actual: Any) -> bool:
        if isinstance(expected, str):
            return self._same_text(expected, actual)
        if isinstance(expected, float):
            same = expected == actual and not self.literal  # infinity minus infinity is no number
            return same or bool(abs(expected - actual) < self.tolerance)
        return bool(expected == actual)

    def _same_text(self, expected: str, actual: str) -> bool:
        wanted, given = expected.lower().split(), actual.lower().split()
        if len(wanted) < 2 or len(given) < 2:
            return expected == actual
        shared = (Counter(wanted) & Counter(given)).total()
        enough = shared / (len(wanted) + len(given)) >= self.word_overlap
        if self.literal or shared == len(wanted) == len(given):
            return enough or not self.literal
        return enough and not _exchanged(wanted, given) and _statement(expected) == _statement(actual)


def _exchanged(wanted: list[str], given: list[str]) -> bool:
    """Whether two short phrases are the same but for one word: 'the draft folder' and 'the backup folder'."""
    if len(wanted) != len(given) or len(wanted) > _SHORT_PHRASE:
        return False
    different = [pair for pair in zip(wanted, given, strict=True) if not _alike(*pair)]
    return len(different) == 1


def _alike(left: str, right: str) -> bool:
    """Whether two words are one, perhaps in another form: 'folder,' and 'folders'. Words with digits have one form."""
    left, right = left.strip("\"'.,;:!?()"), right.strip("\"'.,;:!?()")
    if left == right:
        return True
    if any(character.isdigit() for character in left + right):
        return False
    stem = max(3, math.ceil(0.6 * max(len(left), len(right))))
    return left[:stem] == right[:stem]


def _statement(text: str) -> str | None:
    """The verb of an SQL statement; None for other texts."""
    found = _STATEMENT.match(text)
    return next(verb for verb in found.groups() if verb).lower() if found else None
