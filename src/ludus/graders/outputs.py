"""Whether what a program printed or returned is what was expected.

What is compared comes from hostile programs: any text and any JSON value is accepted, nothing raises, and the time is
in proportion to the size.
"""

from __future__ import annotations

import json
import math
import re
from decimal import Decimal, InvalidOperation
from typing import Any

_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,9})?")

#: Two numbers of which one is a float are equal if they differ by at most ABSOLUTE + RELATIVE * |expected|.
ABSOLUTE, RELATIVE = 1e-8, 1e-5


def same_output(expected: str, given: str) -> bool:
    """Whether two printed outputs are equal, line by line, without white space around the lines.

    Two lines of numbers are equal if the numbers are, exactly: `1.0  2` is `1 2`, and 0.3 is not 0.30000000000000004.
    """
    wanted, found = expected.strip().split("\n"), given.strip().split("\n")
    return len(wanted) == len(found) and all(map(_same_line, wanted, found))


def first_difference(expected: str, given: str) -> str:
    """Where two outputs differ first, in a few words."""
    wanted, found = expected.strip().split("\n"), given.strip().split("\n")
    for number, (line, other) in enumerate(zip(wanted, found, strict=False), start=1):
        if not _same_line(line, other):
            return f"line {number}: expected {shortened(line.strip())}, got {shortened(other.strip())}"
    return f"expected {len(wanted)} lines, got {len(found)}"


def same_value(expected: Any, given: Any) -> bool:
    """Whether two JSON values are equal. Of two numbers, one of them a float, a small difference is allowed.

    Infinity equals only itself: every difference is within a tolerance that is infinite too.
    """
    if _is_number(expected) and _is_number(given) and (isinstance(expected, float) or isinstance(given, float)):
        try:
            allowed = ABSOLUTE + RELATIVE * abs(expected) if math.isfinite(expected) else -1.0
            return bool(expected == given or abs(expected - given) <= allowed)
        except OverflowError:  # an integer that no float can hold
            return False
    try:
        return bool(expected == given) or json.dumps(expected) == json.dumps(given)
    except (RecursionError, ValueError):
        return False


def shortened(text: str, most: int = 300) -> str:
    """A text without its middle if it is long."""
    return text if len(text) <= most else f"{text[: most // 2]} ... {text[-most // 2 :]}"


def _same_line(expected: str, given: str) -> bool:
    expected, given = expected.strip(), given.strip()
    if expected == given:
        return True
    wanted, found = expected.split(), given.split()
    return len(wanted) == len(found) and all(map(_same_number, wanted, found))


def _same_number(expected: str, given: str) -> bool:
    if not (_NUMBER.fullmatch(expected) and _NUMBER.fullmatch(given)):
        return False
    try:
        return Decimal(expected) == Decimal(given)
    except InvalidOperation:
        return False


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
