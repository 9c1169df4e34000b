"""Advantages: how much better a rollout is than the others of its group, as plain functions over rewards.

A group is the rollouts of one task. `counts` says which members belong to the baseline; all do if it is left out. A
masked rollout does not count: it gets an advantage against the baseline of the others, and changes no other advantage.
Failed rollouts have no reward and are no members. Without a baseline, an advantage is 0.0.

    group_mean([1.0, 0.0, 0.0, 1.0])                  # [0.5, -0.5, -0.5, 0.5]
    group_mean([1.0, 0.0, 9.0], [True, True, False])  # [0.5, -0.5, 8.5]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import accumulate

Rewards = Sequence[float]
Counts = Sequence[bool] | None
Estimator = Callable[[Rewards, Counts], list[float]]

#: Added to the standard deviation, as in TRL: almost equal rewards must not get huge advantages.
_EPSILON = 1e-4


def group_mean(rewards: Rewards, counts: Counts = None) -> list[float]:
    """Each reward minus the mean reward of the group."""
    members = _members(rewards, counts)
    if not members:
        return [0.0] * len(rewards)
    mean = _mean(members)
    return [reward - mean for reward in rewards]


def leave_one_out(rewards: Rewards, counts: Counts = None) -> list[float]:
    """Each reward minus the mean reward of the other members. A member without others gets 0.0."""
    members = _members(rewards, counts)
    mean, size = _mean(members), len(members)
    advantages = []
    for index, reward in enumerate(rewards):
        if counts is not None and not counts[index]:
            advantages.append(reward - mean if size else 0.0)
        else:  # equal to: reward - mean of the others
            advantages.append((reward - mean) * (size / (size - 1)) if size > 1 else 0.0)
    return advantages


def z_score(rewards: Rewards, counts: Counts = None) -> list[float]:
    """Each reward minus the mean, divided by the sample standard deviation + 0.0001, as in GRPO.

    If all members have the same reward, or only one counts, every advantage is 0.0, also that of a rollout outside the
    baseline: there is no scale to measure it with.
    """
    members = _members(rewards, counts)
    if len(members) < 2:
        return [0.0] * len(rewards)
    mean = _mean(members)
    deviation = math.hypot(*(reward - mean for reward in members)) / math.sqrt(len(members) - 1)
    if not deviation or min(members) == max(members):
        return [0.0] * len(rewards)
    return [(reward - mean) / (deviation + _EPSILON) for reward in rewards]


def per_turn(turn_rewards: Sequence[Rewards], counts: Counts = None, discount: float = 1.0) -> list[list[float]]:
    """An advantage for every turn of every rollout, from the rewards of its turns.

    The return of a turn is its reward plus the discounted rewards of the later turns. Its advantage is that return
    minus the mean return of the same turn over the members that reached it. Rollouts may differ in length.
    """
    returns = [_returns(rewards, discount) for rewards in turn_rewards]
    counted = [values for index, values in enumerate(returns) if counts is None or counts[index]]
    longest = max(map(len, counted), default=0)
    means = [_mean([values[turn] for values in counted if turn < len(values)]) for turn in range(longest)]
    return [[value - means[turn] if turn < longest else 0.0 for turn, value in enumerate(values)] for values in returns]


#: The estimators that need one reward for each rollout, by name.
ESTIMATORS: dict[str, Estimator] = {"group_mean": group_mean, "leave_one_out": leave_one_out, "z_score": z_score}


def _members(rewards: Rewards, counts: Counts) -> list[float]:
    if counts is None:
        return list(rewards)
    return [reward for reward, counted in zip(rewards, counts, strict=True) if counted]


def _mean(values: Rewards) -> float:
    """The mean; 0.0 of nothing. Dividing first keeps the sum of huge rewards finite."""
    return math.fsum(value / len(values) for value in values) if values else 0.0


def _returns(rewards: Rewards, discount: float) -> list[float]:
    returns = accumulate(reversed(rewards), lambda total, reward: reward + discount * total)
    return list(returns)[::-1]
