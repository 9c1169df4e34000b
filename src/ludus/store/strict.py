"""JSON that a parser accepts with losses, and a dataset must not hold.

A parser drops one of two duplicate keys, and digits of an integer beyond 64 bits.
"""

from __future__ import annotations

import json
from typing import Any

import orjson

from ludus.errors import UserError
from ludus.runtime.encoding import may_have_long_integer

_LEAST, _MOST, _MOST_DIGITS = -(2**63), 2**64 - 1, 20


class DuplicateKey(UserError):
    """An object of a row has a key twice."""

    def __init__(self, where: str, key: str) -> None:
        self.key = key
        self.reason, self.hint = f"the key {key!r:.60} stands twice in an object", "Rename or remove one of them"
        super().__init__(f"{where}: {self.reason}", self.hint)


class LongInteger(UserError):
    """A row has an integer of more than 64 bits."""

    def __init__(self, where: str, digits: str) -> None:
        self.reason = f"the integer {digits:.40} has more than 64 bits, and would be rounded"
        self.hint = "Write it as text, in quotes"
        super().__init__(f"{where}: {self.reason}", self.hint)


def refuse_losses(where: str, line: bytes, value: Any) -> None:
    """Refuse JSON if the parser lost a part of it. `value` is the parsed line."""
    try:
        refuse_duplicate_keys(where, line, value)
    except TypeError as error:
        raise UserError(f"{where}: nested too deep: {error}", "Fix the row or leave it out") from error
    refuse_long_integers(where, line)


def refuse_long_integers(where: str, line: bytes) -> None:
    """Refuse a row with an integer that the parser rounds."""
    if not may_have_long_integer(line):
        return
    numbers: list[str] = []

    def look(digits: str) -> int:
        if len(digits.lstrip("-")) > _MOST_DIGITS or not _LEAST <= int(digits) <= _MOST:
            numbers.append(digits)
        return 0

    try:
        json.loads(line, parse_int=look)
    except (ValueError, RecursionError):  # the caller refuses what is no JSON, or nested too deep
        pass
    if numbers:
        raise LongInteger(where, numbers[0])


def refuse_duplicate_keys(where: str, line: bytes, row: Any) -> None:
    """Refuse a row in which an object has a key twice. `row` is what the parser made of the line."""
    # The parser keeps the last of two equal keys, so the quotes of the other are gone when the row is written again.
    # Only a quote that is escaped as \u0022 is written with one more than it was read.
    if line.count(b'"') == orjson.dumps(row).count(b'"') and b"\\u0022" not in line:
        return
    key = _first_duplicate(line)
    if key is not None:
        raise DuplicateKey(where, key)


def _first_duplicate(line: bytes) -> str | None:
    keys: list[str] = []

    def look(pairs: list[tuple[str, Any]]) -> None:
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                keys.append(key)
            seen.add(key)

    try:
        json.loads(line, object_pairs_hook=look)
    except (ValueError, RecursionError):
        return None
    return keys[0] if keys else None
