"""Restarts: when a worker process that died is started again."""

from __future__ import annotations

from ludus.runtime.restarts import MAX_FAILED_STARTS, Restarts


def test_workers_that_die_in_a_row_before_they_worked_are_given_up():
    restarts = Restarts()
    pauses = [restarts.pause(worked=False) for _ in range(MAX_FAILED_STARTS)]
    assert pauses[-1] is None
    assert pauses[:-1] == sorted(pauses[:-1])
    assert len(set(pauses)) == MAX_FAILED_STARTS


def test_a_worker_that_has_worked_is_always_started_again_at_once():
    restarts = Restarts()
    assert [restarts.pause(worked=True) for _ in range(100)] == [0.0] * 100


def test_a_worker_that_has_worked_ends_the_row_of_failed_starts():
    restarts = Restarts()
    for _ in range(3):
        assert None not in [restarts.pause(worked=False) for _ in range(MAX_FAILED_STARTS - 1)]
        restarts.pause(worked=True)
