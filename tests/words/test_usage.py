"""Running totals of token counts."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ludus.dialects.usage import add_usage, less_usage

COUNTS = st.dictionaries(st.sampled_from("abc"), st.integers(0, 9))
USAGE = st.dictionaries(st.sampled_from("abc"), st.integers(0, 9) | COUNTS | st.none() | st.text(max_size=2))


def total(*usages: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for usage in usages:
        add_usage(found, usage)
    return found


def without_nothing(usage: dict[str, Any]) -> dict[str, Any]:
    found = {key: without_nothing(value) if isinstance(value, dict) else value for key, value in usage.items()}
    return {key: value for key, value in found.items() if value}


@given(st.lists(USAGE, max_size=3), USAGE)
def test_what_was_added_last_can_be_taken_away(before, last):
    assert without_nothing(less_usage(total(*before, last), last)) == without_nothing(total(*before))
