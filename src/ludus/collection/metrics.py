"""What a collection amounts to: counts that add up, rewards with their uncertainty, tokens and time.

Rewards are of completed rollouts only. A rollout passes when its reward is at least 1. A task is closed, and its
sums forgotten, once all its repeats are in, so memory does not grow with the dataset.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from numbers import Real
from typing import Any

import orjson

from ludus.collection.statistics import ClusteredMean, Distribution, pass_at_k, pass_hat_k
from ludus.outcome import Outcome
from ludus.response import add_usage
from ludus.rollout import Rollout
from ludus.runtime.encoding import encode

PASS = 1.0
TASKS_LISTED = 10_000
TURNS_LISTED = 100
BATCH = 1024

#: Values of verdicts that are common, and have no mean.
_NO_NUMBER = frozenset({str, list, dict, tuple, set, type(None)})


class _Group:
    """The repeats of one task so far."""

    __slots__ = ("failed", "masked", "passed", "seen", "total", "verified")

    def __init__(self) -> None:
        self.seen = self.verified = self.passed = self.failed = self.masked = 0
        self.total = 0.0

    def summary(self, task_id: str) -> dict[str, Any]:
        n = self.verified
        counts = {"completed": n, "failed": self.failed, "masked": self.masked, "passed": self.passed}
        rates = {"pass_rate": self.passed / n if n else None, "mean_reward": self.total / n if n else None}
        return {"task_id": task_id, **counts, **rates}


class Metrics:
    """Running metrics of a collection. Feed it every rollout once: `metrics.add(rollout)`."""

    def __init__(self, repeats: int = 1) -> None:
        self.repeats = repeats
        self.counts: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.stop_reasons: Counter[str] = Counter()
        self.reward = ClusteredMean()
        self.reward_sum = 0.0
        self._open: dict[str, _Group] = {}
        self._values: dict[str, list[float]] = {}
        self._components: dict[str, list[float]] = {}
        self._turn_rewards: list[list[float]] = []
        self._passes: Counter[tuple[int, int]] = Counter()  # tasks by how many repeats were verified, and passed
        self._tasks: list[tuple[str, _Group]] = []
        self._closed = 0
        self._turns = Distribution()
        self._timings: dict[str, Distribution] = {}
        self._usage: dict[str, Any] = {}
        self._unsettled: list[tuple[int, dict[str, float], dict[str, Any]]] = []

    @property
    def dispatched(self) -> int:
        """How many rollouts have an outcome."""
        return self.counts.total()

    @property
    def mean_reward(self) -> float | None:
        """The mean reward of completed rollouts so far."""
        completed = self.counts["completed"]
        return self.reward_sum / completed if completed else None

    def add(self, rollout: Rollout) -> None:
        """Count one rollout with its final outcome."""
        self.counts[rollout.outcome] += 1
        task_id = rollout.job.task_id
        group = self._open.get(task_id) or _Group()
        group.seen += 1
        self._unsettled.append((len(rollout.calls), rollout.timings, rollout.usage))
        if len(self._unsettled) == BATCH:
            self._settle()
        if rollout.error is not None:
            group.failed += 1
            self.failures[f"{rollout.error.stage}/{rollout.error.kind}"] += 1
        else:
            self.stop_reasons[str(rollout.stop_reason)] += 1
            self._add_reward(rollout, group)
        if group.seen < self.repeats:
            self._open[task_id] = group
        else:
            self._open.pop(task_id, None)
            self._close(task_id, group)

    def _add_reward(self, rollout: Rollout, group: _Group) -> None:
        verdict = rollout.verdict
        if verdict is None or rollout.outcome is Outcome.MASKED:
            group.masked += 1
            return
        reward = verdict.reward
        group.verified += 1
        group.total += reward
        group.passed += reward >= PASS
        self.reward_sum += reward
        if verdict.components:
            _add_means(self._components, verdict.components)
        if verdict.turn_rewards:
            _add_turns(self._turn_rewards, verdict.turn_rewards)
        if verdict.values:
            _add_means(self._values, verdict.values)

    def _close(self, task_id: str, group: _Group) -> None:
        self._closed += 1
        if len(self._tasks) < TASKS_LISTED:
            self._tasks.append((task_id, group))
        if group.verified:
            self._passes[group.verified, group.passed] += 1
            self.reward.add(group.verified, group.total)

    def _settle(self) -> None:
        """Count the turns, times and tokens of the last rollouts: together, because one by one costs twice as much."""
        batch, self._unsettled = self._unsettled, []
        if not batch:
            return
        self._turns.add([turns for turns, _, _ in batch])
        times: dict[str, list[float]] = {}
        for _, timings, usage in batch:
            for stage, seconds in timings.items():
                times.setdefault(stage, []).append(seconds)
            add_usage(self._usage, usage)
        for stage, values in times.items():
            self._timings.setdefault(stage, Distribution()).add(values)

    def summary(self, seconds: float | None = None) -> dict[str, Any]:
        """Everything as one JSON object. Tasks whose repeats are not all in yet count with what they have."""
        for task_id, group in self._open.items():
            self._close(task_id, group)
        self._open.clear()
        self._settle()
        counts = {outcome.value: self.counts[outcome.value] for outcome in Outcome}
        interval = self.reward.interval()
        return {
            "counts": {"dispatched": sum(counts.values()), **counts},
            "failures": dict(self.failures.most_common()),
            "reward": {
                "mean": self.reward.mean,
                "ci95": list(interval) if interval else None,
                "components": _means(self._components),
                "by_turn": [{"mean": total / count, "count": int(count)} for count, total in self._turn_rewards],
            },
            "values": _means(self._values),
            "pass@k": self._pass_by_k(pass_at_k),
            "pass^k": self._pass_by_k(pass_hat_k),
            "pass_rates": self._pass_rates(),
            "stop_reasons": dict(self.stop_reasons.most_common()),
            "usage": self._usage,
            "turns": self._turns.summary(),
            "seconds": {"wall": seconds, **{stage: d.summary() for stage, d in self._timings.items()}},
            "tasks": [group.summary(task_id) for task_id, group in self._tasks],
            "tasks_left_out": self._closed - len(self._tasks),
        }

    def _pass_by_k(self, estimate: Callable[[int, int, int], float]) -> dict[str, float]:
        """What an estimator comes to on average, for every k that some task has enough repeats for."""
        found = {}
        for k in range(1, self.repeats + 1):
            able = [(tasks, estimate(n, passed, k)) for (n, passed), tasks in self._passes.items() if n >= k]
            if able:
                found[str(k)] = sum(tasks * value for tasks, value in able) / sum(tasks for tasks, _ in able)
        return found

    def _pass_rates(self) -> dict[str, int]:
        """How many tasks were passed how often, in tenths."""
        rates: Counter[float] = Counter()
        for (n, passed), tasks in self._passes.items():
            rates[round(passed / n, 1)] += tasks
        return {str(rate): tasks for rate, tasks in sorted(rates.items())}


def _add_means(sums: dict[str, list[float]], values: dict[str, Any]) -> None:
    for name, value in values.items():
        kind = value.__class__
        if kind in _NO_NUMBER:
            continue
        number = value if kind is bool else _number(value)
        if number is not None:
            pair = sums.setdefault(name, [0, 0.0])
            pair[0] += 1
            pair[1] += number


def _number(value: Any) -> float | None:
    """The number that the record will hold for a value, so that a resumed run finds the same: NumPy's are numbers too.

    None for what is no number, or none that can be summed.
    """
    try:
        if value.__class__ not in (float, int) and (isinstance(value, Real) or hasattr(value, "item")):
            value = orjson.loads(encode(value))
        return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None
    except (OverflowError, ValueError):  # an integer that no float can hold
        return None


def _add_turns(sums: list[list[float]], rewards: list[float]) -> None:
    """What each turn earned, in rollouts that came to it; of very long ones only the first turns are told apart."""
    for turn, reward in enumerate(rewards[:TURNS_LISTED]):
        if turn == len(sums):
            sums.append([0, 0.0])
        sums[turn][0] += 1
        sums[turn][1] += reward


def _means(sums: dict[str, list[float]]) -> dict[str, float]:
    return {name: total / count for name, (count, total) in sums.items()}
