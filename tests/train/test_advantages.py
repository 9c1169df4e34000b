"""Advantages: the arithmetic of each estimator, and that masked members move nobody else's."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludus.data.advantages import ESTIMATORS, group_mean, leave_one_out, per_turn, z_score

REWARD = st.floats(-100, 100)
GROUPS = st.lists(st.tuples(REWARD, st.booleans()), min_size=1, max_size=8)


def test_group_mean_subtracts_the_mean():
    assert group_mean([1.0, 0.0, 0.0, 1.0]) == [0.5, -0.5, -0.5, 0.5]


@given(st.lists(REWARD, min_size=2, max_size=8))
def test_leave_one_out_subtracts_the_mean_of_the_others(rewards: list[float]):
    expected = [
        reward - statistics.fmean(rewards[:index] + rewards[index + 1 :]) for index, reward in enumerate(rewards)
    ]
    assert leave_one_out(rewards) == pytest.approx(expected, abs=1e-9)


def test_z_score_divides_by_the_sample_deviation():
    rewards = [0.0, 1.0, 2.0]
    assert z_score(rewards) == pytest.approx([-1 / 1.0001, 0.0, 1 / 1.0001])


@pytest.mark.parametrize("name", ESTIMATORS)
def test_equal_rewards_and_lone_members_have_no_advantage(name: str):
    assert ESTIMATORS[name]([0.7, 0.7, 0.7], None) == pytest.approx([0.0] * 3)
    assert ESTIMATORS[name]([0.7], None) == [0.0]
    assert ESTIMATORS[name]([0.7, 0.2], [False, False]) == [0.0, 0.0]
    assert ESTIMATORS[name]([], None) == []


@pytest.mark.parametrize("name", ESTIMATORS)
@given(group=GROUPS, other=REWARD)
def test_a_masked_member_moves_nobody_elses_advantage(name: str, group: list[tuple[float, bool]], other: float):
    rewards, counts = [reward for reward, _ in group], [counted for _, counted in group]
    found = ESTIMATORS[name](rewards, counts)
    alone = ESTIMATORS[name]([reward for reward, counted in group if counted], None)
    assert [each for each, counted in zip(found, counts, strict=True) if counted] == alone
    changed = [reward if counted else other for reward, counted in group]
    again = ESTIMATORS[name](changed, counts)
    assert [each for each, counted in zip(again, counts, strict=True) if counted] == alone


@given(st.lists(REWARD, min_size=1, max_size=8))
def test_group_mean_advantages_add_up_to_nothing(rewards: list[float]):
    assert sum(group_mean(rewards)) == pytest.approx(0.0, abs=1e-9)


def test_a_masked_member_is_measured_against_the_others():
    assert group_mean([1.0, 0.0, 9.0], [True, True, False]) == [0.5, -0.5, 8.5]
    assert leave_one_out([1.0, 0.0, 9.0], [True, True, False]) == [1.0, -1.0, 8.5]


def test_huge_rewards_stay_finite():
    assert group_mean([1.7e308, 1.7e308]) == [0.0, 0.0]


def test_a_turn_is_compared_with_the_same_turn_of_the_rollouts_that_reached_it():
    found = per_turn([[0.0, 1.0], [1.0], [0.0, 0.0, 3.0]])
    # returns: [1, 1], [1], [3, 3, 3]
    assert found == [[pytest.approx(1 - 5 / 3), -1.0], [pytest.approx(1 - 5 / 3)], [pytest.approx(3 - 5 / 3), 1.0, 0.0]]


def test_a_discount_shrinks_later_rewards_and_masked_turns_do_not_count():
    assert per_turn([[0.0, 4.0], [0.0, 0.0]], discount=0.5) == [[1.0, 2.0], [-1.0, -2.0]]
    assert per_turn([[1.0], [5.0, 2.0]], [True, False]) == [[0.0], [6.0, 0.0]]
