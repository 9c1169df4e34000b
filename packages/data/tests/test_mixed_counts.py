"""The weights of a prepared mix hold, and no environment gives more rows than it has."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from ludus_data.mixing import mixed_counts

from ludus.data.mixing import check_mix

WEIGHTS = st.dictionaries(st.text("abcdef", min_size=1, max_size=3), st.floats(0.01, 100), min_size=2, max_size=5)


@given(WEIGHTS, st.data())
def test_the_weights_hold_and_no_environment_gives_more_than_it_has(weights: dict[str, float], data: st.DataObject):
    shares = check_mix(weights, weights)
    available = {name: data.draw(st.integers(0, 10_000)) for name in shares}
    counts = mixed_counts(shares, available)
    total = sum(counts.values())
    assert all(0 <= counts[name] <= available[name] for name in shares)
    assert all(abs(counts[name] - share * total) <= 1 + 1e-6 for name, share in shares.items())
    # No larger mix is possible: the scarcest environment is used up, but for the rounding of its own share.
    assert any(available[name] - counts[name] <= shares[name] + 1 for name in shares)


def test_a_mix_of_60_and_40_percent_uses_up_the_scarcest():
    shares = check_mix({"math": 0.6, "tools": 0.4}, ["math", "tools"])
    assert mixed_counts(shares, {"math": 300, "tools": 1000}) == {"math": 300, "tools": 200}
