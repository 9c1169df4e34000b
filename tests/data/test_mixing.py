"""Weights of environments: shares hold, no environment gives more rows than it has, mistakes are one line."""

from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludus import UserError
from ludus.data.mixing import check_mix, parse_mix, turns

WEIGHTS = st.dictionaries(st.text("abcdef", min_size=1, max_size=3), st.floats(0.01, 100), min_size=2, max_size=5)


@given(WEIGHTS, st.integers(1, 3000))
def test_after_every_row_the_counts_are_close_to_the_weights(weights: dict[str, float], rows: int):
    shares = check_mix(weights, weights)
    counts = dict.fromkeys(shares, 0)
    for name in islice(turns(shares), rows):
        counts[name] += 1
    assert all(abs(counts[name] - share * rows) < len(shares) for name, share in shares.items())


@pytest.mark.parametrize(
    ("given_", "says"),
    [
        ("math", "--mix math is not NAME=NUMBER"),
        ("math=x", "--mix math=x is not NAME=NUMBER"),
        ("math=0,tools=1", "--mix math=0 is not NAME=NUMBER with a number above 0"),
        ("math=nan", "--mix math=nan is not NAME=NUMBER"),
        ("math=1,math=2", "--mix names math twice"),
        ("", "--mix  is not NAME=NUMBER"),
    ],
)
def test_a_malformed_mix_is_refused(given_: str, says: str):
    with pytest.raises(UserError, match=says):
        parse_mix(given_)


def test_every_environment_needs_a_weight_and_every_weight_an_environment():
    with pytest.raises(UserError, match="--mix has no weight for tools"):
        check_mix({"math": 1}, ["math", "tools"])
    with pytest.raises(UserError, match="--mix names tols.*Did you mean tools"):
        check_mix({"math": 1, "tols": 1}, ["math", "tools"])
    with pytest.raises(UserError, match="two environments or more"):
        check_mix({"math": 1}, ["math"])
