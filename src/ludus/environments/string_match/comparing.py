r"""Compares a short answer with the expected answer.

Both are brought into several spellings. If they are equal in one of them, the reward is 1. Nearly equal numbers, and
numbers that differ only by a missing unit, earn 0.98. With `compat` the spellings are the reference's, which also
replace units, separators and state names inside words and names.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation

from ludus.environments.string_match.latex import plain, quantity_text
from ludus.environments.string_match.quantities import (
    equal_without_units,
    loosely_equal_without_units,
    loosely_nearly_equal,
    nearly_equal,
)
from ludus.environments.string_match.states import NAMES_OF_PEOPLE, STATES

NEARLY = 0.98

_PLAIN_QUOTES = {'"': '"', "'": "'"}
_QUOTES = {**_PLAIN_QUOTES, "\u201c": "\u201d", "\u2018": "\u2019", "\u00ab": "\u00bb", "`": "`"}
_EMPHASIS = ("**", "__", "*", "_")
_DIGIT_COMMA = re.compile(r"(?<=\d),(?=\d)")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_SEPARATOR = re.compile(r"[,;]|\b(?:and|or)\b")
_SEPARATOR_ANYWHERE = re.compile(r"[,;]|and|or")
_LIST_SEPARATOR = re.compile(r" ?[,;] ?")
_STATE = re.compile(rf"\b(?:{'|'.join(sorted(STATES, key=len, reverse=True))})\b")
#: These states are also names of people. They count as a state only if something shows that a place is meant.
_STATE_OR_PERSON = re.compile(
    rf"(?P<place>\b(?:of|in|at|from|near|to)\s+)?(?P<state>{_STATE.pattern})"
    r"(?P<after>\s*(?:$|[,;.()]|and\b|or\b|city\b|state\b|university\b|tech\b))?"
)


def reward_of(answer: str, expected: str, *, case_sensitive: bool = False, compat: bool = False) -> float:
    """1 for the same answer, 0.98 for nearly the same number, 0 for anything else.

    reward_of("It is Texas", "it is TX")   # 1.0
    reward_of("50%", "50")                 # 0.98
    """
    if not answer.strip() or not expected.strip():
        return 0.0
    if case_sensitive:
        return float(answer.strip() == expected.strip())
    left, right = normalised(answer, compat), normalised(expected, compat)
    if max(len(left), len(right)) > 20 * min(len(left), len(right)) + 200:
        return 0.0  # no spelling changes the length that much
    if any(
        spelling == other for spelling, other in zip(_spellings(left, compat), _spellings(right, compat), strict=True)
    ):
        return 1.0
    quantities = quantity_text(left), quantity_text(right)
    if compat:
        nearly = loosely_nearly_equal(left, right) or loosely_nearly_equal(*quantities)
        unitless = loosely_equal_without_units(left, right)
    else:
        nearly, unitless = nearly_equal(*quantities), equal_without_units(left, right)
    return NEARLY if nearly else float(unitless)


def normalised(text: str, compat: bool = False) -> str:
    """The text in lower case, without surrounding quotes and emphasis, and without punctuation at the end."""
    text = unicodedata.normalize("NFKC", text).strip()
    if compat:
        text = _unquoted(text, _PLAIN_QUOTES)
        return (text.rstrip(".!?").strip() or text).lower()
    for _ in range(4):
        text = _unemphasised(_unquoted(text, _QUOTES))
        text = text.rstrip(".!?").strip() or text
    return text.lower()


def _unquoted(text: str, quotes: dict[str, str]) -> str:
    inner = text[1:-1].strip()
    return inner if inner and quotes.get(text[0]) == text[-1] else text


def _unemphasised(text: str) -> str:
    for mark in _EMPHASIS:
        inner = text[len(mark) : -len(mark)].strip()
        if inner and text.startswith(mark) and text.endswith(mark):
            return inner
    return text


def _spellings(text: str, compat: bool) -> Iterator[object]:
    yield text
    yield _as_number(text, compat)
    yield (_DIGIT_COMMA if compat else _THOUSANDS).sub("", text)
    yield plain(text)
    yield plain(text, space=" ")
    yield _without_separators(text, compat)
    yield _LIST_SEPARATOR.sub(", ", _THOUSANDS.sub("", " ".join(text.split())))
    yield _STATE.sub(lambda state: STATES[state[0]], text) if compat else _STATE_OR_PERSON.sub(_abbreviated, text)


def _as_number(text: str, compat: bool) -> object:
    """The number that a text spells, or the text itself."""
    plain = text.replace("$", "").replace("\\%", "")
    try:
        number = repr(float(plain)) if compat else Decimal(plain)
    except (ValueError, InvalidOperation):
        return text
    return text if isinstance(number, Decimal) and number.is_nan() else number


def _abbreviated(match: re.Match[str]) -> str:
    state = match["state"]
    if state in NAMES_OF_PEOPLE and match["place"] is None and match["after"] is None:
        return match[0]
    return f"{match['place'] or ''}{STATES[state]}{match['after'] or ''}"


def _without_separators(text: str, compat: bool) -> str:
    """A list without its separators, unless these are more than a tenth of the text."""
    listed = _SEPARATOR_ANYWHERE.sub(" ", text) if compat else _SEPARATOR.sub(" ", _THOUSANDS.sub("", text))
    items = " ".join(listed.split())
    return items if len(items) >= 0.9 * len(text) else text
