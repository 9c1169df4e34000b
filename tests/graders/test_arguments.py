"""Which arguments of a function call match the expected ones, and which do not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ludus.graders.arguments import ArgumentComparison

values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=9)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_leaves=8,
)
DEFAULT, LITERAL = ArgumentComparison(), ArgumentComparison(literal=True)


@settings(max_examples=50)
@given(values)
def test_every_value_equals_itself(value: Any) -> None:
    assert DEFAULT.difference(value, value) is None


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
        (float("inf"), float("inf"), None, "value"),
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
