"""Whether an answer gives the expected text.

The answer must contain the expected text, in upper or lower case. If 2 is right, "12", "anything but 2" and counting
from 1 to 100 contain it too. So the text must also be a whole word or number, not denied, and not one of a list.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice, pairwise

#: How many other numbers an answer may contain that are not in the questions.
OTHER_NUMBERS = 12

#: How many characters around a mention are checked, and how many mentions.
NEAR = 80
MENTIONS = 1000

_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_NUMBER_GOES_ON = re.compile(r"\d|[.,/]\d")
_WORD_ENDS = re.compile(r"(?:s|es)?(?![^\W_])")
_DENIED = re.compile(
    r"(?:\b(?:not|never|nor|neither|no|except|without|(?:any|every)thing but|other than|rather than|instead of)"
    r"|n['\u2019]t)(?:\s+(?:a|an|be|exactly|equal|in|is|it|really|the|to)){0,3}[\s\"'*_$(]*$"
)
_EMPHASIS = str.maketrans({mark: " " for mark in "\"'*_$"})
_SEPARATORS = {",", ";", "/", "|", "...", "\u2026", "or", "and"}


def says(text: str, expected: str, asked: str) -> bool:
    """Whether `text` gives the `expected` answer to the questions in `asked`."""
    text, expected = text.lower(), expected.lower()
    if _NUMBER.fullmatch(expected.strip()) and _is_one_of_many(text, expected.strip(), asked):
        return False
    return any(
        _stands_alone(text, start, end) and not _DENIED.search(text[max(0, start - NEAR) : start])
        for start, end in islice(_mentions(text, expected), MENTIONS)
    )


def _mentions(text: str, expected: str) -> Iterator[tuple[int, int]]:
    start = text.find(expected)
    while start >= 0:
        yield start, start + len(expected)
        start = text.find(expected, start + len(expected))


def _stands_alone(text: str, start: int, end: int) -> bool:
    """Whether a mention is a whole word or number. A plural s may follow a word, and a unit a number."""
    before, after = text[max(0, start - 2) : start], text[end : end + 3]
    if text[start].isdigit():
        if before[-1:].isdigit() or (before[-1:] in (".", ",", "/") and before[:1].isdigit()):
            return False
        if before[-1:] in ("-", "\u2212") and not before[:1].isalnum():
            return False
    elif text[start].isalpha() and before[-1:].isalnum():
        return False
    if text[end - 1].isdigit():
        return _NUMBER_GOES_ON.match(after) is None
    return not text[end - 1].isalpha() or _WORD_ENDS.match(after) is not None


def _is_one_of_many(text: str, expected: str, asked: str) -> bool:
    """Whether a number is next to another in a list, or among many numbers that the questions do not mention."""
    numbers = list(_NUMBER.finditer(text))
    others = {number[0] for number in numbers} - set(_NUMBER.findall(asked)) - {expected}
    return len(others) > OTHER_NUMBERS or any(
        expected in (number[0], following[0])
        and number[0] != following[0]
        and _is_list(text[number.end() : following.start()][:NEAR])
        for number, following in pairwise(numbers)
    )


def _is_list(between: str) -> bool:
    """Whether the text between two numbers makes them a list: `20, 21` or `20 or 21`."""
    spaced = re.sub(r"([,;/|])", r" \1 ", between.translate(_EMPHASIS))
    return bool(between) and "\n" not in between and all(word in _SEPARATORS for word in spaced.split())
