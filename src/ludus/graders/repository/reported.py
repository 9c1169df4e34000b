"""Values that a test reported, as plain data. Hostile code may have written them.

Depth is limited, and no set or dictionary is ever made of hostile values: thousands of integers with the same hash
would block this process. A reported set or dictionary is a list that compares like a set or a dictionary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from decimal import Decimal
from fractions import Fraction
from typing import Any

#: `inside.py` reports deeper values as `other`.
_DEEPEST = 16


class Other:
    """A reported value that is no plain data: it equals nothing."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return False


class ReportedSet:
    """A set that was reported, compared with a set of ours."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, parts: list[Any]) -> None:
        self.parts = parts

    def __contains__(self, value: object) -> bool:
        return value in self.parts

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Set) and len(self.parts) == len(other) and self <= other and self >= other

    def __le__(self, other: Set[Any]) -> bool:
        return all(part in other for part in self.parts)

    def __ge__(self, other: Set[Any]) -> bool:
        shared = [part for part in self.parts if part in other]
        return len(shared) >= len(other) and len(set(shared)) == len(other)  # equal to values of ours, so a set is safe

    def __lt__(self, other: Set[Any]) -> bool:
        return self <= other and not self >= other

    def __gt__(self, other: Set[Any]) -> bool:
        return self >= other and not self <= other


class ReportedDict:
    """A dictionary that was reported, compared with one of ours."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, pairs: list[tuple[Any, Any]]) -> None:
        self.pairs = pairs

    def __contains__(self, key: object) -> bool:
        return any(key == reported for reported, _ in self.pairs)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Mapping):
            return False
        same = self.by_keys_of(other)
        return same is not None and all(same[key] == other[key] for key in other)

    def by_keys_of(self, expected: Mapping[Any, Any]) -> dict[Any, Any] | None:
        """The reported values under our own keys, or None if the keys differ."""
        if len(self.pairs) != len(expected) or not all(key in expected for key, _ in self.pairs):
            return None
        values = dict(self.pairs)  # each key equals one of ours, so a dictionary is safe
        return values if len(values) == len(expected) else None


def value_of(report: Any, depth: int = 0) -> Any:
    """The plain value of a report."""
    if depth > _DEEPEST or not isinstance(report, dict) or len(report) != 1:
        return Other()
    ((kind, content),) = report.items()
    if kind == "value":
        return content if content is None or isinstance(content, (bool, int, str)) else Other()
    if isinstance(content, list):
        return _collection(kind, content, depth + 1)
    if isinstance(content, str) and kind in _FROM_TEXT:
        try:
            return _FROM_TEXT[kind](content)
        except (ValueError, ArithmeticError):
            return Other()
    return Other()


def _collection(kind: str, parts: list[Any], depth: int) -> Any:
    if kind == "dict":
        if not all(isinstance(pair, list) and len(pair) == 2 for pair in parts):
            return Other()
        return ReportedDict([(value_of(key, depth), value_of(part, depth)) for key, part in parts])
    values = [value_of(part, depth) for part in parts]
    if kind == "tuple":
        return tuple(values)
    if kind in ("set", "frozenset"):
        return ReportedSet(values)
    return values if kind == "list" else Other()


_FROM_TEXT: dict[str, Callable[[str], Any]] = {
    "float": float,
    "bytes": bytes.fromhex,
    "complex": complex,
    "decimal": Decimal,
    "fraction": lambda text: Fraction(*map(int, text.split("/", 1))),  # Fraction("1e999999999") would never end
}
