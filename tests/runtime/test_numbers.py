"""`whole_number`: the one place where digits that others wrote become a number."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludus.runtime.numbers import whole_number


@given(st.text(max_size=30) | st.text("0123456789²٣", max_size=30))
def test_only_ascii_digits_are_a_number(text: str):
    number = whole_number(text)
    assert (number is None) or (number == int(text) and set(text) <= set("0123456789"))


@pytest.mark.parametrize("text", ["", "²", "1²", "٣", "-1", "+1", " 1", "1_000", "1.0", "9" * 19, "9" * 5000])
def test_no_other_text_is_a_number(text: str):
    assert whole_number(text) is None


def test_leading_zeros_count_as_digits():
    assert whole_number("007", digits=3) == 7
    assert whole_number("007", digits=2) is None
