"""Length against reward: are long answers better, or only answers to other tasks?"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ludus.store.statistics import Comoments, Mean
from ludus_bench.profile.tasks import TaskProfile


class LengthBins:
    """The mean reward and the pass rate of rollouts by length. Each bin is twice as long as the one before."""

    def __init__(self) -> None:
        self._bins: dict[int, tuple[Mean, Mean]] = {}

    def add(self, length: int, reward: float, passed: bool) -> None:
        """Add a completed rollout."""
        bin_ = self._bins.setdefault(length.bit_length(), (Mean(), Mean()))
        for mean, value in zip(bin_, (reward, float(passed)), strict=True):
            mean.add(value)

    def rows(self) -> list[dict[str, Any]]:
        """The bins, the shortest first. A bin holds lengths from `from` to `to`."""
        return [
            {
                "from": 1 << (bits - 1) if bits else 0,
                "to": (1 << bits) - 1,
                "rollouts": rewards.count,
                "mean_reward": rewards.mean,
                "pass_rate": passes.mean,
            }
            for bits, (rewards, passes) in sorted(self._bins.items())
        ]


class Lengths:
    """Lengths in tokens if every completed rollout reports them, else in characters: the two are not mixed."""

    def __init__(self) -> None:
        self._tokens, self._characters = LengthBins(), LengthBins()
        self._completed = self._with_tokens = 0

    def add(self, tokens: int, characters: int, reward: float, passed: bool) -> None:
        """Add a completed rollout. `tokens` is 0 if they are not known."""
        self._completed += 1
        self._characters.add(characters, reward, passed)
        if tokens:
            self._with_tokens += 1
            self._tokens.add(tokens, reward, passed)

    def summary(self, tasks: Iterable[TaskProfile]) -> dict[str, Any]:
        """The correlation of length and reward over all rollouts and within tasks, and the bins."""
        in_tokens = 0 < self._completed == self._with_tokens
        overall, within = Comoments(), Comoments()
        for task in tasks:
            lengths = task.tokens if in_tokens else task.characters
            overall.merge(lengths)
            within.merge_within(lengths)
        return {
            "unit": "tokens" if in_tokens else "characters",
            "correlation": overall.correlation,
            "correlation_within_tasks": within.correlation,
            "bins": (self._tokens if in_tokens else self._characters).rows(),
        }
