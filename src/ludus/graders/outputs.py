"""Compares the output or the return value of a program with the expected one.

The values come from hostile programs: any text and any JSON value is accepted, nothing raises, and the time is in
proportion to the size.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal, InvalidOperation
from typing import Any

_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,9})?")

#: If one of two numbers is a float, they are equal if they differ by at most ABSOLUTE + RELATIVE * |expected|.
ABSOLUTE, RELATIVE = 1e-8, 1e-5


def same_output(expected: str, actual: str) -> bool:
    """Whether two printed outputs are equal, line by line, without white space around the lines.

    Two lines of numbers are equal if the numbers are, exactly: `1.0  2` is `1 2`, and 0.3 is not 0.30000000000000004.
    """
    expected_lines, actual_lines = expected.strip().split("\n"), actual.strip().split("\n")
    return len(expected_lines) == len(actual_lines) and all(map(_same_line, expected_lines, actual_lines))


def first_difference(expected: str, actual: str) -> str:
    """Where two outputs differ first, in a few words."""
    expected_lines, actual_lines = expected.strip().split("\n"), actual.strip().split("\n")
    for number, (line, other) in enumerate(zip(expected_lines, actual_lines, strict=False), start=1):
        if not _same_line(line, other):
            return f"line {number}: expected {shortened(line.strip())}, got {shortened(other.strip())}"
    return f"expected {len(expected_lines)} lines, got {len(actual_lines)}"


def same_value(expected: Any, actual: Any) -> bool:
    """Whether two JSON values are equal. A float may differ a little from the other number, also inside a list.

    Infinity equals only itself: every difference is within a tolerance that is infinite too.
    """
    try:
        return _same(expected, actual)
    except RecursionError:
        return False


def _same(expected: Any, actual: Any) -> bool:
    if isinstance(expected, list) and isinstance(actual, list):
        return len(expected) == len(actual) and all(map(_same, expected, actual))
    if isinstance(expected, dict) and isinstance(actual, dict):
        return expected.keys() == actual.keys() and all(_same(expected[key], actual[key]) for key in expected)
    if _is_number(expected) and _is_number(actual) and (isinstance(expected, float) or isinstance(actual, float)):
        try:
            allowed = ABSOLUTE + RELATIVE * abs(expected) if math.isfinite(expected) else -1.0
            both_nan = expected != expected and actual != actual
            return bool(expected == actual or both_nan or abs(expected - actual) <= allowed)
        except OverflowError:  # an integer that no float can hold
            return False
    return bool(expected == actual)


def shortened(text: str, most: int = 300) -> str:
    """A text without its middle if it is long."""
    return text if len(text) <= most else f"{text[: most // 2]} ... {text[-most // 2 :]}"


def _same_line(expected: str, actual: str) -> bool:
    expected, actual = expected.strip(), actual.strip()
    if expected == actual:
        return True
    expected_words, actual_words = expected.split(), actual.split()
    return len(expected_words) == len(actual_words) and all(map(_same_number, expected_words, actual_words))


def _same_number(expected: str, actual: str) -> bool:
    if not (_NUMBER.fullmatch(expected) and _NUMBER.fullmatch(actual)):
        return False
    try:
        return Decimal(expected) == Decimal(actual)
    except InvalidOperation:
        return False


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
