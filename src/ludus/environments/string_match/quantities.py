r"""Compares numbers with a currency, a percent sign or a unit.

A number without a unit matches any unit; two different units never match. The loose functions reproduce the reference:
they delete the letters of a unit anywhere, also inside words.
"""

from __future__ import annotations

import re

Quantity = tuple[float, str]

#: (1 - relative error) ** 2 must be above this: an error of about one percent.
_CLOSENESS = 0.98

_UNIT = r"\^\{?\\circ\}?|\\circ|\u00b0|km|cm|mm|kg|m"
_DEGREES = ("^\\circ", "^{\\circ}", "\\circ")
_MONEY = "$\u20ac\u00a3\u00a5\u20b9"
_NUMBER = r"(?:\d{1,3}(?:,\d{3})+(?:\.\d*)?|\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?"
_QUANTITY = re.compile(rf"([+-]?)\s*\\?([{_MONEY}]?)\s*([+-]?)\s*({_NUMBER})\s*(?:(\\?%|{_UNIT})|\\?([{_MONEY}]))?")
_UNIT_ANYWHERE = re.compile(_UNIT)
_UNIT_OF_NUMBER = re.compile(rf"(?<=\d)\s*(\\?%|{_UNIT})(?![a-z0-9])")


def nearly_equal(actual: str, expected: str) -> bool:
    """Whether two texts, in lower case, are quantities with compatible units within one percent of each other."""
    first, second = _quantity(actual), _quantity(expected)
    return first is not None and second is not None and _compatible(first[1], second[1]) and _close(first[0], second[0])


def loosely_nearly_equal(actual: str, expected: str) -> bool:
    """Whether two texts, after deleting currencies, percent signs and units, are numbers within one percent."""
    try:
        return _close(_loose_number(actual), _loose_number(expected))
    except ValueError:
        return False


def equal_without_units(actual: str, expected: str) -> bool:
    """Whether two texts are the same except for units after numbers that only one of them has."""
    left, right = _UNIT_OF_NUMBER.sub("", actual).split(), _UNIT_OF_NUMBER.sub("", expected).split()
    return left == right and _compatible(_units(actual), _units(expected))


def loosely_equal_without_units(actual: str, expected: str) -> bool:
    """Whether two texts are the same after deleting the letters of units everywhere, also inside words."""
    left, right = (" ".join(_UNIT_ANYWHERE.sub("", text).split()) for text in (actual, expected))
    return left == right and bool(left)


def _quantity(text: str) -> Quantity | None:
    if len(text) > 2 and text[0] == text[-1] == "$":
        text = text[1:-1]
    match = _QUANTITY.fullmatch(text.strip())
    if match is None:
        return None
    sign, money, inner_sign, number, unit, money_after = match.groups()
    if (sign and inner_sign) or (money and money_after):
        return None
    return float(sign + inner_sign + number.replace(",", "")), money or money_after or _canonical(unit or "")


def _loose_number(text: str) -> float:
    for character in (*_MONEY, "\\%", "%", ","):
        text = text.replace(character, "")
    return float(_UNIT_ANYWHERE.sub("", text))


def _close(actual: float, expected: float) -> bool:
    if not expected:
        return actual == expected
    error = abs(actual - expected) / abs(expected)
    return error < 1 and (1 - error) ** 2 > _CLOSENESS


def _units(text: str) -> str:
    return " ".join(_canonical(unit) for unit in _UNIT_OF_NUMBER.findall(text))


def _canonical(unit: str) -> str:
    return "\u00b0" if unit in _DEGREES else unit.removeprefix("\\")


def _compatible(left: str, right: str) -> bool:
    return not left or not right or left == right
