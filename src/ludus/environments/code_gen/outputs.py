"""Compares what a program printed with what it should print. Any text is accepted, in time proportional to its size."""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation

from ludus.graders.outputs import shortened

_NUMBER = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,9})?")


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
