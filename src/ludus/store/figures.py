"""What the rewards of a run add up to: the mean with its interval, pass@k, pass^k and pass rates.

The one place that computes them: for `metrics.json`, the viewer, `ludus compare` and `ludus profile`. The repeats of a
task are one cluster. The interval lies within the range of rewards that the environments declare.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from ludus.outcome import PASS_REWARD
from ludus.store.statistics import ClusteredMean, pass_at_each_k, pass_hat_each_k

#: The range of rewards in an environment that declares none, as long as no reward lies outside.
USUAL_RANGE = (0.0, 1.0)


class Scale(Protocol):
    """How an environment scores: an `Environment`, or what run.json recorded of one."""

    @property
    def name(self) -> str:
        """The environment's name."""

    @property
    def pass_reward(self) -> float:
        """The lowest reward that counts as a pass."""

    @property
    def reward_range(self) -> tuple[float, float] | None:
        """The lowest and the highest reward, if the environment declares them."""


class RewardFigures:
    """Running figures of completed rollouts. `add_task` takes the sums over the repeats of one task."""

    def __init__(self, scales: Sequence[Scale] = ()) -> None:
        self._pass_rewards = {scale.name: scale.pass_reward for scale in scales}
        self._ranges = [scale.reward_range or USUAL_RANGE for scale in scales] or [USUAL_RANGE]
        self._mean = ClusteredMean()
        self._lowest, self._highest = math.inf, -math.inf
        self.passes: Counter[tuple[int, int]] = Counter()  #: the number of tasks by (completed, passed) repeats

    def add_scale(self, scale: Scale) -> None:
        """Say how an environment scores that was not known at the start."""
        self._pass_rewards[scale.name] = scale.pass_reward
        self._ranges.append(scale.reward_range or USUAL_RANGE)

    def is_pass(self, environment: str, reward: float) -> bool:
        """Whether a reward is a pass in an environment."""
        return reward >= self._pass_rewards.get(environment, PASS_REWARD)

    def add_rewards(self, lowest: float, highest: float) -> None:
        """Say between which bounds more rewards lie."""
        if lowest < self._lowest:
            self._lowest = lowest
        if highest > self._highest:
            self._highest = highest

    @property
    def extremes(self) -> tuple[float, float]:
        """The lowest and the highest reward; infinity and minus infinity without one."""
        return self._lowest, self._highest

    def add_task(self, completed: int, passed: int, total: float) -> None:
        """Add a task: how many of its rollouts completed and passed, and the sum of their rewards."""
        if completed:
            self.passes[completed, passed] += 1
            self._mean.add(completed, total)

    @property
    def tasks(self) -> int:
        """How many tasks have a reward."""
        return self._mean.clusters

    @property
    def pass_reward(self) -> float | None:
        """The lowest reward that counts as a pass; None if it differs between environments."""
        rewards = set(self._pass_rewards.values()) or {PASS_REWARD}
        return rewards.pop() if len(rewards) == 1 else None

    def reward(self) -> dict[str, Any]:
        """The mean reward, its 95 % confidence interval, and the range of rewards."""
        bounds = self._bounds()
        interval = self._mean.interval(bounds)
        return {
            "mean": self._mean.mean,
            "ci95": list(interval) if interval else None,
            "range": list(bounds) if bounds else None,
        }

    def pass_at_k(self) -> dict[str, float]:
        """The chance that at least one of k rollouts passes."""
        return self._by_k(pass_at_each_k)

    def tasks_with(self, repeats: int) -> int:
        """How many tasks have so many completed rollouts or more. Only they count in pass@k of that k."""
        return sum(tasks for (completed, _), tasks in self.passes.items() if completed >= repeats)

    def pass_hat_k(self) -> dict[str, float]:
        """The chance that all of k rollouts pass."""
        return self._by_k(pass_hat_each_k)

    def pass_rates(self) -> dict[str, int]:
        """The number of tasks by pass rate, rounded to tenths."""
        rates: Counter[float] = Counter()
        for (completed, passed), tasks in self.passes.items():
            rates[round(passed / completed, 1)] += tasks
        return {str(rate): tasks for rate, tasks in sorted(rates.items())}

    def _bounds(self) -> tuple[float, float] | None:
        """The bounds of rewards: those that the environments declare, else 0 and 1. None if a reward lies outside."""
        low, high = min(low for low, _ in self._ranges), max(high for _, high in self._ranges)
        return (low, high) if low <= self._lowest and self._highest <= high else None

    def _by_k(self, estimates: Callable[[int, int], Iterable[float]]) -> dict[str, float]:
        """The mean of an estimator over tasks, for every k that some task has enough repeats for."""
        longest = max((completed for completed, _ in self.passes), default=0)
        totals, counts = [0.0] * longest, [0] * longest
        for (completed, passed), tasks in sorted(self.passes.items()):
            for index, value in enumerate(estimates(completed, passed)):
                totals[index] += tasks * value
                counts[index] += tasks
        return {str(k): total / count for k, (total, count) in enumerate(zip(totals, counts, strict=True), start=1)}
