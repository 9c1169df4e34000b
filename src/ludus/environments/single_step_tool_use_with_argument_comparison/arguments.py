"""Whether the arguments of a function call match the expected arguments.

Numbers, booleans and single words must be equal. Texts of several words match if they share enough words. Two texts
never match if they are short phrases that differ in exactly one word or number, or SQL statements with different verbs.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass
from typing import Any, Literal

#: How an argument differs: in its type, in the keys of an object, in the length of a list, or in its value.
Difference = Literal["type", "keys", "length", "value"]

#: The fewest and the most words of a phrase in which one different word counts. In a shorter phrase one word is a large
#: part of the overlap, so the threshold decides; only a different number counts.
_PHRASE = range(4, 7)
_SQL = re.compile(
    r"\s*(?:(select)\b.*\bfrom\b|(insert)\s+into\b|(update)\b.*\bset\b|(delete)\s+from\b"
    r"|(drop|create|alter|truncate)\s+(?:table|view|index|database|schema)\b)",
    re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True)
class ArgumentComparison:
    """How strictly arguments are compared.

    ArgumentComparison().difference({"n": 2}, {"n": 2})     # None
    ArgumentComparison().difference({"n": 2}, {"n": "2"})   # 'type'
    """

    #: The least overlap: shared words / (words of both texts). Two texts of the same words have an overlap of 0.5.
    word_overlap: float = 0.1
    #: Two floats are equal if they differ by less than this.
    tolerance: float = 1e-6
    #: Compare types with `isinstance`, and texts by word overlap alone.
    literal: bool = False

    def difference(self, expected: Any, actual: Any) -> Difference | None:
        """The first difference between the actual and the expected value, or None."""
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
        return next((different for pair in pairs if (different := self.difference(*pair))), None)

    def _same_type(self, expected: Any, actual: Any) -> bool:
        if self.literal:
            return isinstance(actual, type(expected))
        return type(expected) is type(actual)

    def _same_leaf(self, expected: Any, actual: Any) -> bool:
        if isinstance(expected, str):
            return self._same_text(expected, actual)
        if isinstance(expected, float):
            difference = abs(expected - actual)  # NaN for two infinities, which JSON does not have: they never match
            return bool(difference < self.tolerance or difference == 0)
        return bool(expected == actual)

    def _same_text(self, expected: str, actual: str) -> bool:
        expected_words, actual_words = expected.lower().split(), actual.lower().split()
        if len(expected_words) < 2 or len(actual_words) < 2:
            return expected == actual
        shared = (Counter(expected_words) & Counter(actual_words)).total()
        enough = shared / (len(expected_words) + len(actual_words)) >= self.word_overlap
        if self.literal or shared == len(expected_words) == len(actual_words):
            return enough or not self.literal
        return (
            enough and not _one_word_differs(expected_words, actual_words) and _sql_verb(expected) == _sql_verb(actual)
        )


def _one_word_differs(expected: list[str], actual: list[str]) -> bool:
    """Whether two short phrases differ in exactly one word: 'open the draft folder' and 'open the backup folder'."""
    if len(expected) != len(actual) or len(expected) >= _PHRASE.stop:
        return False
    different = [pair for pair in zip(expected, actual, strict=True) if not _same_word(*pair)]
    return len(different) == 1 and (len(expected) in _PHRASE or _has_digit("".join(different[0])))


def _same_word(left: str, right: str) -> bool:
    """Whether two words share their stem, like 'folder,' and 'folders'. Words with digits must be equal."""
    left, right = left.strip("\"'.,;:!?()"), right.strip("\"'.,;:!?()")
    if left == right:
        return True
    if _has_digit(left + right):
        return False
    stem = max(3, math.ceil(0.6 * max(len(left), len(right))))
    return left[:stem] == right[:stem]


def _has_digit(text: str) -> bool:
    return any(character.isdigit() for character in text)


def _sql_verb(text: str) -> str | None:
    """The verb of an SQL statement; None for other texts."""
    statement = _SQL.match(text)
    return next(verb for verb in statement.groups() if verb).lower() if statement else None
