"""Reported values compare like the plain data they stand for, and hostile ones cost no more than honest ones."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ludus.graders.repository.inside import plain
from ludus.graders.repository.reported import value_of

_KEYS = st.none() | st.booleans() | st.integers(-3, 3) | st.text("ab", max_size=2)
_VALUES = st.recursive(
    _KEYS | st.floats(allow_nan=False) | st.binary(max_size=2) | st.decimals(allow_nan=False) | st.fractions(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.tuples(inner) | st.sets(_KEYS) | st.dictionaries(_KEYS, inner, max_size=3)
    ),
    max_leaves=6,
)


@given(_VALUES, _VALUES)
def test_a_reported_value_equals_what_the_value_itself_equals(value: Any, other: Any):
    reported = value_of(plain(value))
    assert reported == value
    assert (reported == other) == (value == other)


@given(st.sets(_KEYS), st.sets(_KEYS))
def test_a_reported_set_is_ordered_like_a_set(value: set[Any], other: set[Any]):
    reported = value_of(plain(value))
    found = (reported <= other, reported < other, reported >= other, reported > other)
    assert found == (value <= other, value < other, value >= other, value > other)
    assert all((each in reported) == (each in value) for each in other)


class _Counted(int):
    """Counts how often integers are compared."""

    compared = 0

    def __eq__(self, other: object) -> bool:
        _Counted.compared += 1
        return int(self) == other

    __hash__ = int.__hash__


def test_integers_with_the_same_hash_are_not_compared_with_each_other():
    prime = (1 << 61) - 1
    for kind, wrapped in (("set", lambda each: each), ("dict", lambda each: [each, each])):
        parts = [wrapped({"value": _Counted(prime * number)}) for number in range(2000)]
        _Counted.compared = 0
        assert value_of({kind: parts}) != {5: 5}
        assert value_of({kind: parts}) != {5}
        assert _Counted.compared < 5 * len(parts)
