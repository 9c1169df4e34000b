"""Whole numbers in text that others wrote: headers, command lines, names of files.

`str.isdigit` is no check before `int`: it accepts `²`, which `int` refuses, and `int` refuses more than 4,300 digits.
"""

from __future__ import annotations


def whole_number(text: str, digits: int = 18) -> int | None:
    """The number that at most `digits` ASCII digits spell; None for any other text."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= digits else None
