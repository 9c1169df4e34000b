"""The named parts of a reward: their means, and how they correlate with the reward and with each other."""

from __future__ import annotations

from itertools import combinations
from typing import Any

from ludus.store.statistics import Comoments

#: How many components are correlated: pairs grow quadratically, and a file may hold any names.
MAX_COMPONENTS = 40


class Components:
    """Running correlations. A rollout that lacks one of two components does not count for the pair."""

    def __init__(self) -> None:
        self._with_reward: dict[str, Comoments] = {}
        self._pairs: dict[tuple[str, str], Comoments] = {}
        self._left_out = 0

    def add(self, components: dict[str, float], reward: float) -> None:
        """Add the components of a completed rollout."""
        known = []
        for name in sorted(components):
            if name in self._with_reward or len(self._with_reward) < MAX_COMPONENTS:
                self._with_reward.setdefault(name, Comoments()).add(components[name], reward)
                known.append(name)
        self._left_out += len(components) - len(known)
        for first, second in combinations(known, 2):
            self._pairs.setdefault((first, second), Comoments()).add(components[first], components[second])

    def summary(self) -> dict[str, Any]:
        """For each component: in how many rollouts, its mean, and its correlations."""
        correlated: dict[str, dict[str, float | None]] = {name: {} for name in self._with_reward}
        for (first, second), pair in self._pairs.items():
            correlated[first][second] = correlated[second][first] = pair.correlation
        return {
            "each": {
                name: {
                    "rollouts": pairs.count,
                    "mean": pairs.mean_x,
                    "correlation_with_reward": pairs.correlation,
                    "correlation": correlated[name],
                }
                for name, pairs in sorted(self._with_reward.items())
            },
            "values_left_out": self._left_out,
        }
