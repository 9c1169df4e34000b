"""Running means, variances and correlations of pairs agree with Python's own, in any order and however merged."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludus.store.statistics import Comoments

numbers = st.integers(-50, 50).map(float)
pairs = st.lists(st.tuples(numbers, numbers), min_size=2, max_size=40)


def of(values: list[tuple[float, float]]) -> Comoments:
    found = Comoments()
    for x, y in values:
        found.add(x, y)
    return found


def agree(found: Comoments, values: list[tuple[float, float]]) -> None:
    xs, ys = [x for x, _ in values], [y for _, y in values]
    assert found.count == len(values)
    assert found.mean_x == pytest.approx(statistics.fmean(xs), abs=1e-9)
    assert found.mean_y == pytest.approx(statistics.fmean(ys), abs=1e-9)
    assert found.variance_y == pytest.approx(statistics.variance(ys), abs=1e-9)
    if len(set(xs)) > 1 and len(set(ys)) > 1:
        assert found.correlation == pytest.approx(statistics.correlation(xs, ys), abs=1e-9)


@given(pairs)
def test_pairs_agree_with_the_standard_library(values: list[tuple[float, float]]) -> None:
    agree(of(values), values)


@given(pairs, st.integers(0, 40))
def test_merging_two_parts_is_adding_all_pairs(values: list[tuple[float, float]], cut: int) -> None:
    merged = of(values[:cut])
    merged.merge(of(values[cut:]))
    agree(merged, values)


def test_merging_within_leaves_out_the_difference_between_groups() -> None:
    easy, hard = [(1.0, 1.0), (2.0, 0.0)], [(101.0, 0.1), (102.0, 0.0)]
    within, overall = Comoments(), Comoments()
    for group in (easy, hard):
        within.merge_within(of(group))
        overall.merge(of(group))
    assert within.correlation is not None
    assert within.correlation < -0.7
    assert overall.correlation == pytest.approx(statistics.correlation(*zip(*(easy + hard), strict=True)))


def test_a_number_that_never_varies_has_no_correlation() -> None:
    assert of([(1.0, 0.0), (1.0, 1.0)]).correlation is None
    assert Comoments().correlation is None
    assert Comoments().variance_y is None
