r"""Whether the content of a box is the expected result: the same text in another dress, or the same number."""

from __future__ import annotations

import re
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal

_DECIMAL = r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?"
_NUMBER = re.compile(rf"[+-]?{_DECIMAL}")
_GROUPED = re.compile(r"[+-]?[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?")
_FRACTION = re.compile(
    rf"([+-]?)(?:\\[dt]?frac\{{([+-]?{_DECIMAL})\}}\{{([+-]?{_DECIMAL})\}}|({_DECIMAL})/({_DECIMAL}))"
)
_INFINITY = re.compile(r"([+-]?)(?:inf|infinity|\\infty)", re.IGNORECASE)
_AROUND_SIGNS = re.compile(r"\s*([,;:()\[\]{}=+*/^<>-])\s*")

#: Around an answer, at most once each, from the outside in.
_DRESS = (("\\(", "\\)"), ("$", "$"), ("\\text{", "}"), ("{", "}"))

#: Unless both numbers are integers, they are equal if they differ by less than this times max(1, |expected|).
TOLERANCE = Decimal("1e-6")

#: Nothing overflows, and nothing raises.
_EXACT = Context(prec=500, Emax=MAX_EMAX, Emin=MIN_EMIN, traps=[])


def same_answer(expected: str, answer: str) -> bool:
    """Whether an answer is the expected one.

    same_answer(r"\\(0.5\\)", r"\\frac{1}{2}")   # True
    """
    expected_text, answer_text = undressed(expected), undressed(answer)
    if expected_text == answer_text:
        return bool(expected_text) and expected_text.lower() != "nan"
    number, other = value_of(expected_text), value_of(answer_text)
    if number is None or other is None:
        return False
    if not (number.is_finite() and other.is_finite()) or (_is_integer(number) and _is_integer(other)):
        return number == other
    difference = _EXACT.abs(_EXACT.subtract(number, other))
    return difference < _EXACT.multiply(TOLERANCE, max(Decimal(1), number.copy_abs()))


def undressed(text: str) -> str:
    """The text without delimiters around it and without white space that means nothing."""
    text = " ".join(text.split())
    for opening, closing in _DRESS:
        inner = text[len(opening) : len(text) - len(closing)]
        if len(text) >= len(opening) + len(closing) and text.startswith(opening) and text.endswith(closing):
            text = inner.strip() if _balanced(inner) else text
    return _AROUND_SIGNS.sub(r"\1", text)


def value_of(text: str) -> Decimal | None:
    """The number that a text is: a decimal, one with groups of digits, a fraction of decimals, or infinity."""
    if _NUMBER.fullmatch(text):
        return Decimal(text)
    if _GROUPED.fullmatch(text):
        return Decimal(text.replace(",", ""))
    if infinite := _INFINITY.fullmatch(text):
        return Decimal(f"{infinite[1]}Infinity")
    if fraction := _FRACTION.fullmatch(text):
        sign, *parts = fraction.groups()
        above, below = (Decimal(part) for part in parts if part is not None)
        return _EXACT.divide(above.copy_negate() if sign == "-" else above, below) if below else None
    return None


def _is_integer(number: Decimal) -> bool:
    return number == number.to_integral_value()


def _balanced(text: str) -> bool:
    """Whether no brace of the text closes one outside of it."""
    depth = 0
    for letter in text:
        depth += {"{": 1, "}": -1}.get(letter, 0)
        if depth < 0:
            return False
    return depth == 0
