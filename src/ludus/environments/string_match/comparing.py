r"""Compares a short answer with the expected answer.

Both are brought into several spellings. If they are equal in one of them, the reward is 1. Numbers that are nearly
equal, or equal except for a unit that only one has, earn 0.98. With `compat` the spellings are the reference's, which
also replace units, separators and state names inside words and names.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from decimal import Decimal, InvalidOperation

from ludus.environments.string_match.quantities import (
    equal_without_units,
    loosely_equal_without_units,
    loosely_nearly_equal,
    nearly_equal,
)
from ludus.environments.string_match.states import STATES

NEARLY = 0.98

_PLAIN_QUOTES = {'"': '"', "'": "'"}
_QUOTES = {**_PLAIN_QUOTES, "\u201c": "\u201d", "\u2018": "\u2019", "\u00ab": "\u00bb", "`": "`"}
_EMPHASIS = ("**", "__", "*", "_")
_WRAPPERS = "boxed|text|textbf|textit|textrm|mathrm|mathbf|mathit|mathsf|operatorname|mbox"
_WRAPPER = re.compile(rf"\\(?:{_WRAPPERS})\s*\{{([^{{}}]*)\}}")
_DELIMITER = re.compile(r"\\?\$|\\[()\[\]]|\\(?:left|right)\b|\\[,;:! ]")
_DIGIT_COMMA = re.compile(r"(?<=\d),(?=\d)")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_SEPARATOR = re.compile(r"\s*(?:[,;]|\b(?:and|or)\b)\s*")
_SEPARATOR_ANYWHERE = re.compile(r"\s*(?:[,;]|and|or)\s*")
_STATE = re.compile(rf"\b(?:{'|'.join(sorted(STATES, key=len, reverse=True))})\b")
_STATE_ALONE = re.compile(rf"{_STATE.pattern}(?=\s*(?:$|[,;.()]|and\b|or\b))")


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
    if any(one == other for one, other in zip(_spellings(left, compat), _spellings(right, compat), strict=True)):
        return 1.0
    if compat:
        nearly, unitless = loosely_nearly_equal(left, right), loosely_equal_without_units(left, right)
    else:
        nearly, unitless = nearly_equal(_unwrapped(left), _unwrapped(right)), equal_without_units(left, right)
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
    yield " ".join(_DELIMITER.sub("", _unwrapped(text)).split())
    yield _without_separators(text, compat)
    yield (_STATE if compat else _STATE_ALONE).sub(lambda state: STATES[state[0]], text)


def _as_number(text: str, compat: bool) -> object:
    """The number that a text spells, or the text itself."""
    plain = text.replace("$", "").replace("\\%", "")
    try:
        number = repr(float(plain)) if compat else Decimal(plain)
    except (ValueError, InvalidOperation):
        return text
    return text if isinstance(number, Decimal) and number.is_nan() else number


def _unwrapped(text: str) -> str:
    r"""The text with `\boxed{}`, `\text{}` and similar wrappers replaced by their content."""
    for _ in range(5):
        text, found = _WRAPPER.subn(r"\1", text)
        if not found:
            break
    return text


def _without_separators(text: str, compat: bool) -> str:
    """A list without its separators, unless these are more than a tenth of the text."""
    items = " ".join((_SEPARATOR_ANYWHERE if compat else _SEPARATOR).sub(" ", text).split())
    return items if len(items) >= 0.9 * len(text) else text
