"""kill -9 at any moment: after a resume every rollout is recorded once, and at most a turn of each is played again."""

from __future__ import annotations

import random

import pytest
from kills import MOMENTS, Killed

ENGINES = pytest.mark.parametrize("engine", [(), ("--workers", "2")], ids=["this process", "two workers"])


@ENGINES
def test_a_killed_driver_loses_at_most_a_turn(tmp_path, engine):
    Killed(tmp_path / "sums", 8, *engine).kill_the_driver(1 if engine else 2, 40)


@ENGINES
def test_a_program_that_is_started_again_goes_on_where_the_driver_was_killed(tmp_path, engine):
    Killed(tmp_path / "sums", 6, *engine, by_program=True).kill_the_driver(1 if engine else 2, 30)


def test_a_killed_worker_loses_at_most_a_turn_and_its_rollouts_go_on_elsewhere(tmp_path):
    killed = Killed(tmp_path / "sums", 12, "--workers", "2")
    killed.kill_workers_after([30, 40])
    killed.check()


@pytest.mark.slow
def test_programs_killed_at_many_moments_lose_at_most_a_call_each_time(tmp_path):
    Killed(tmp_path / "sums", 24, by_program=True).kill_the_driver(MOMENTS, 240 // MOMENTS)


@pytest.mark.slow
@ENGINES
def test_a_driver_killed_at_many_moments_loses_at_most_a_turn_each_time(tmp_path, engine):
    Killed(tmp_path / "sums", 24, *engine).kill_the_driver(MOMENTS, 420 // MOMENTS)


@pytest.mark.slow
def test_workers_killed_at_many_moments_lose_at_most_a_turn_each_time(tmp_path):
    chosen = random.Random(7)
    # Enough rollouts that the last kill is not among the last of them: three kills in a row fail a rollout.
    killed = Killed(tmp_path / "sums", 10 * MOMENTS, "--workers", "2")
    killed.kill_workers_after([chosen.randrange(10, 40) for _ in range(MOMENTS)])
    killed.check()
