"""The shuffle is a permutation, depends on the seed alone, and does not hold the lines in memory."""

from __future__ import annotations

import tracemalloc
from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from ludus_data.shuffle import shuffled

LINES = st.lists(st.binary(max_size=20).map(lambda text: text.replace(b"\n", b"") + b"\n"), max_size=60)


@given(LINES, st.integers(), st.integers(0, 200))
def test_a_shuffle_is_a_permutation_with_any_memory(lines: list[bytes], seed: int, memory: int):
    found = list(shuffled(iter(lines), seed, memory))
    assert Counter(found) == Counter(lines)
    assert found == list(shuffled(lines, seed, memory))


def test_lines_larger_than_the_memory_are_all_kept():
    lines = [bytes([65 + number]) * 100 + b"\n" for number in range(5)]
    assert Counter(shuffled(lines, 0, memory=10)) == Counter(lines)


def test_every_order_is_about_equally_likely_in_memory_and_in_files():
    lines = [b"a\n", b"b\n", b"c\n"]
    for memory in (100, 1):
        orders = Counter(b"".join(shuffled(lines, seed, memory)) for seed in range(600))
        assert len(orders) == 6
        assert min(orders.values()) > 50  # 100 are expected; the chance of 50 is below one in a million


def test_the_memory_is_that_of_the_limit():
    lines = (b"%09d" % number * 100 + b"\n" for number in range(20_000))  # 18 MB
    tracemalloc.start()
    count = sum(1 for _ in shuffled(lines, 1, memory=1_000_000))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 20_000
    assert peak < 6_000_000
