"""Compares the return value of a program with the expected one.

The values come from hostile programs: any text and any JSON value is accepted, nothing raises, and the time is in
proportion to the size.
"""

from __future__ import annotations

import math
from typing import Any

#: If one of two numbers is a float, they are equal if they differ by at most ABSOLUTE + RELATIVE * |expected|.
ABSOLUTE, RELATIVE = 1e-8, 1e-5


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


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
