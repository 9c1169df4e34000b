"""Which arguments of a function call match the expected ones, and which do not."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ludus.environments.single_step_tool_use_with_argument_comparison.arguments import ArgumentComparison

values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=9)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_leaves=8,
)
DEFAULT, LITERAL = ArgumentComparison(), ArgumentComparison(literal=True)


def finite(value: Any) -> bool:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return all(map(finite, inner)) and not (isinstance(value, float) and not math.isfinite(value))


@settings(max_examples=100)
@given(values)
def test_every_value_equals_itself_unless_a_number_in_it_is_not_finite(value: Any) -> None:
    for comparison in (DEFAULT, ArgumentComparison(0.5, literal=True)):
        assert (comparison.difference(value, value) is None) == finite(value)


@given(st.floats(), st.floats())
def test_an_infinite_number_equals_no_number(left: float, right: float) -> None:
    for comparison in (DEFAULT, LITERAL):
        is_same = comparison.difference(left, right) is None
        assert is_same == (math.isfinite(left) and math.isfinite(right) and abs(left - right) < 1e-6)


words = st.lists(st.sampled_from("red blue wine glass old 17 18".split()), min_size=2, max_size=8).map(" ".join)


@given(words, words, st.floats(0, 0.5), st.floats(0, 0.5))
def test_a_higher_threshold_never_makes_two_texts_match(left: str, right: str, one: float, other: float) -> None:
    low, high = sorted((one, other))
    for literal in (False, True):
        if ArgumentComparison(low, literal=literal).difference(left, right):
            assert ArgumentComparison(high, literal=literal).difference(left, right)


@given(words, words, st.integers(0, 8))
def test_a_text_exactly_at_the_threshold_matches(left: str, right: str, shared: int) -> None:
    """The same words in both texts count, against the words of both."""
    ours, theirs = left.split(), right.split()
    both = len(ours) + len(theirs)
    counted = (Counter(ours) & Counter(theirs)).total()
    found = ArgumentComparison(shared / both, literal=True).difference(left, right)
    assert (found is None) == (counted >= shared)


@pytest.mark.parametrize(
    ("expected", "actual", "threshold", "difference"),
    [
        ("red wine glass", "red wine bottle", 0.3, None),
        ("red wine glass", "red wine bottle", 2 / 6, None),
        ("red wine glass", "red wine bottle", 0.34, "value"),
        ("red wine", "red beer", 0.25, None),
        ("order 17 now", "order 18 now", 0.3, "value"),
        ("one two three four five", "one two three six seven", 0.3, None),
    ],
)
def test_phrases_of_up_to_three_words_follow_the_threshold_unless_a_number_differs(
    expected: str, actual: str, threshold: float, difference: str | None
) -> None:
    assert ArgumentComparison(threshold).difference(expected, actual) == difference


@settings(max_examples=50)
@given(values, values, st.floats(0, 1))
def test_no_pair_of_values_makes_a_comparison_raise(expected: Any, actual: Any, overlap: float) -> None:
    for literal in (False, True):
        found = ArgumentComparison(overlap, literal=literal).difference(expected, actual)
        assert found in (None, "type", "keys", "length", "value")


@pytest.mark.parametrize(
    ("expected", "actual", "difference"),
    [
        (2, 2, None),
        (2, 3, "value"),
        (2, "2", "type"),
        (2.0, 2.0000001, None),
        (2.0, 2.1, "value"),
        (None, None, None),
        (None, "", "type"),
        (True, False, "value"),
        (True, 1, "type"),
        ([], {}, "type"),
        ([1, 2], [1, 2], None),
        ([1, 2], [2, 1], "value"),
        ([1, 2], [1], "length"),
        ({"a": 1}, {"a": 1}, None),
        ({"a": 1}, {"a": 1, "b": 2}, "keys"),
        ({"a": 1}, {}, "keys"),
        ({"a": {"b": [1]}}, {"a": {"b": ["1"]}}, "type"),
        ("", "", None),
        ("Oslo", "Oslo", None),
        ("Oslo", "oslo", "value"),
        ("Oslo", "Oslo city", "value"),
        ("flights to Oslo", "FLIGHTS TO OSLO", None),
        ("flights to Oslo", "to Oslo flights", None),
        ("a quiet room with a view", "please find some quiet", None),
        ("a quiet room with a view", "something else entirely", "value"),
        (float("nan"), float("nan"), "value"),
        (float("inf"), float("inf"), "value"),
        (float("-inf"), float("inf"), "value"),
        (float("inf"), 1e308, "value"),
        (2.0, 2, "type"),
        (2, 2.0, "type"),
        (10**400, 1.5, "type"),
    ],
)
@pytest.mark.parametrize("comparison", [DEFAULT, LITERAL])
def test_both_modes_find_the_same_difference(
    expected: Any, actual: Any, difference: str | None, comparison: ArgumentComparison
) -> None:
    assert comparison.difference(expected, actual) == difference


@pytest.mark.parametrize(
    ("expected", "actual", "default", "literal"),
    [
        (1, True, "type", None),
        ("archive the old report", "archive the new report", "value", None),
        ("archive the old report", "archive the old reports.", None, None),
        ("invoice 17 of May", "invoice 18 of May", "value", None),
        ("SELECT id FROM orders WHERE paid", "DROP TABLE orders WHERE paid", "value", None),
        ("SELECT id FROM orders WHERE paid", "select id, name from orders where paid = 1", None, None),
    ],
)
def test_literal_mode_compares_differently(
    expected: Any, actual: Any, default: str | None, literal: str | None
) -> None:
    assert DEFAULT.difference(expected, actual) == default
    assert LITERAL.difference(expected, actual) == literal


def test_texts_of_the_same_words_match_at_any_threshold_except_in_literal_mode() -> None:
    assert ArgumentComparison(0.9).difference("one two", "two one") is None
    assert ArgumentComparison(0.9, literal=True).difference("one two", "one two") == "value"
    assert ArgumentComparison(0.5, literal=True).difference("one two", "one two") is None
    assert ArgumentComparison(0.0).difference("one two", "three four five") is None


@pytest.mark.usefixtures("processor_limit")
def test_comparison_takes_linear_time_on_hostile_text() -> None:
    for text in ("a " * 600_000, "select " * 300_000, "update " + "set" * 300_000, "é" * 1_200_000):
        DEFAULT.difference("select a from b", text)
        DEFAULT.difference(text, text + " b")
