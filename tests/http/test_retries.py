"""Retries: how often a failed request is sent again, and after what pause."""

from __future__ import annotations

from email.utils import formatdate
from time import perf_counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ludus.http import retries
from ludus.http.retries import Attempts, Retries


def pauses(budget: str, count: int, retries: Retries, left: float | None = None, header: str | None = None) -> list:
    attempts = Attempts(retries, None if left is None else perf_counter() + left)
    return [attempts.pause(budget, header) for _ in range(count)]


@settings(deadline=None)
@given(st.sampled_from(["busy", "server", "dropped", "fresh"]), st.integers(1, 20), st.floats(0, 200))
def test_a_pause_is_bounded_and_never_outlasts_the_deadline(budget, failed, left):
    pause = pauses(budget, failed, Retries(), left)[-1]
    if failed > getattr(Retries(), budget):
        assert pause is None
    elif budget == "fresh":
        assert pause == 0.0
    elif pause is not None:
        assert 0 <= pause <= 60
        assert pause < left


def test_retry_after_is_honoured_up_to_the_longest_pause():
    assert pauses("busy", 1, Retries(), 100, "7") == [7.0]
    assert pauses("busy", 1, Retries(), 100, "5000") == [60.0]
    assert pauses("busy", 1, Retries(), 5, "7") == [None]


def test_retry_after_may_be_a_date(monkeypatch):
    monkeypatch.setattr(retries, "time", lambda: 1_800_000_000.0)
    assert pauses("busy", 1, Retries(), None, formatdate(1_800_000_030, usegmt=True)) == [30.0]
    assert pauses("busy", 1, Retries(), None, "Wed, 21 Oct 2015 07:28:00 GMT") == [0.0]
    assert pauses("busy", 1, Retries(), None, "Wed, 21 Oct 2015 07:28:00 -0000") == [0.0]


@pytest.mark.parametrize("header", ["soon", "", None])
def test_a_retry_after_that_says_nothing_is_ignored(header):
    (pause,) = pauses("busy", 1, Retries(), None, header)
    assert 0 < pause <= 0.5


def test_pauses_grow_exponentially():
    grown = pauses("busy", 20, Retries(first_pause=1.0, busy=20))
    assert [pause <= 2**failed for failed, pause in enumerate(grown[:6])] == [True] * 6
    assert grown[-1] == pytest.approx(45, abs=15.1)


def test_each_budget_is_counted_by_itself():
    attempts = Attempts(Retries(busy=1, server=1))
    assert attempts.pause("busy") is not None
    assert attempts.pause("server") is not None
    assert attempts.pause("busy") is None
