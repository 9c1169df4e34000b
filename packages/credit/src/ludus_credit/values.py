"""The value of a state and the worth of a turn, as plain functions over the rewards of continuations.

The value before a turn is the mean reward of rollouts that were continued from there. After the last turn it is the
recorded reward. A turn is worth the value after it minus the value before it, so the turns of a rollout are together
worth its reward minus the value of its start.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from ludus.store.statistics import ClusteredMean

Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean of `count` rewards, and its 95 % confidence interval; None for fewer than two rewards."""

    mean: float
    interval: Interval | None
    count: int = 0


def value_of(rewards: Sequence[float], bounds: Interval) -> Estimate | None:
    """The value of a state, from the rewards of its continuations; None without any.

    `bounds` are the lowest and the highest reward. They do not apply if a reward lies outside.
    """
    if not rewards:
        return None
    sums = ClusteredMean()
    for reward in rewards:
        sums.add(1, reward)
    inside = bounds[0] <= min(rewards) and max(rewards) <= bounds[1]
    mean = sums.mean
    assert mean is not None
    return Estimate(mean, sums.interval(bounds if inside else None), len(rewards))


def known(reward: float) -> Estimate:
    """A recorded reward, which is not estimated."""
    return Estimate(reward, (reward, reward), 1)


def worths(values: Sequence[Estimate]) -> list[Estimate]:
    """What each turn is worth. `values` has one entry before each turn, and one after the last."""
    return [_difference(after, before) for before, after in pairwise(values)]


def _difference(after: Estimate, before: Estimate) -> Estimate:
    """The difference of two independent means, with Newcombe's interval, which is made of the intervals of both."""
    mean = after.mean - before.mean
    if after.interval is None or before.interval is None:
        return Estimate(mean, None, before.count)
    down = math.hypot(after.mean - after.interval[0], before.interval[1] - before.mean)
    up = math.hypot(after.interval[1] - after.mean, before.mean - before.interval[0])
    return Estimate(mean, (mean - down, mean + up), before.count)
