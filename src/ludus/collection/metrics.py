"""The metrics of a collection: counts, rewards with confidence intervals, pass rates, tokens and times.

Rewards are of completed rollouts only. A rollout passes if its reward is at least its environment's `pass_reward`. When
all repeats of a task are counted, its sums are merged into the totals and dropped, so memory does not grow with the
dataset.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ludus.collection.broken_sequences import BrokenSequences
from ludus.dialects.usage import add_usage
from ludus.outcome import Outcome, counted_outcomes
from ludus.rollout import Rollout
from ludus.store.figures import RewardFigures, Scale
from ludus.store.statistics import NOT_NUMERIC, Distribution, ExactSum, Mean, finite_number
from ludus.store.verifiers import Verifiers

#: The quantiles of seconds that metrics.json lists.
SECONDS_SHARES = (0.5, 0.95, 0.99)
MAX_TASKS_LISTED = 10_000
MAX_TURNS_LISTED = 100
BATCH = 1024


@dataclass(frozen=True)
class RunTotals:
    """The totals of a run so far: rollouts by outcome, failures by `stage/kind`, tokens, and seconds by stage.

    Rewards and passes are of completed rollouts; None before the first.
    """

    counts: dict[str, int]
    failures: dict[str, int]
    mean_reward: float | None
    pass_rate: float | None
    usage: dict[str, Any]
    seconds: dict[str, float]


class _TaskSums:
    """Sums over the repeats of one task."""

    __slots__ = ("failed", "masked", "passed", "seen", "total", "verified")

    def __init__(self) -> None:
        self.seen = self.verified = self.passed = self.failed = self.masked = 0
        self.total = ExactSum()

    def summary(self, task_id: str) -> dict[str, Any]:
        n = self.verified
        counts = {"completed": n, "failed": self.failed, "masked": self.masked, "passed": self.passed}
        rates = {"pass_rate": self.passed / n if n else None, "mean_reward": self.total.value / n if n else None}
        return {"task_id": task_id, **counts, **rates}


class Metrics:
    """Running metrics of a collection. Call `metrics.add(rollout)` once per rollout.

    With several environments, there are metrics of each, unless `by_environment` is false.
    """

    def __init__(self, repeats: int = 1, environments: Sequence[Scale] = (), *, by_environment: bool = True) -> None:
        self.repeats = repeats
        self.figures = RewardFigures(environments)
        names = {environment.name for environment in environments} if by_environment else set()
        alike = {name: [each for each in environments if each.name == name] for name in names}
        self._each = {name: Metrics(repeats, each) for name, each in alike.items()} if len(names) > 1 else {}
        self.counts: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.stop_reasons: Counter[str] = Counter()
        self.verifiers = Verifiers()
        self.tool_errors: Counter[tuple[str, str, str | None]] = Counter()  # by tool, exception and line
        self._too_long = 0  # rollouts whose last prompt exceeds the model's context
        self._first_too_long: str | None = None
        self._broken = BrokenSequences()
        self.reward_sum = 0.0
        self._incomplete: dict[str, _TaskSums] = {}
        self._values: dict[str, Mean] = {}
        self._components: dict[str, Mean] = {}
        self._turn_rewards: list[Mean] = []
        self._tasks: list[tuple[str, _TaskSums]] = []
        self._tasks_counted = 0
        self._turns = Distribution()
        self._timings: dict[str, Distribution] = {}
        self._usage: dict[str, Any] = {}
        self._pending: list[tuple[int, dict[str, float], dict[str, Any]]] = []

    def add_scale(self, scale: Scale) -> None:
        """Declare how a new environment scores, before its first rollout is added."""
        self.figures.add_scale(scale)

    @property
    def dispatched(self) -> int:
        """How many rollouts have an outcome."""
        return self.counts.total()

    @property
    def mean_reward(self) -> float | None:
        """The mean reward of completed rollouts so far."""
        completed = self.counts["completed"]
        return self.reward_sum / completed if completed else None

    def extremes(self, environment: str) -> tuple[float, float]:
        """The lowest and the highest reward in an environment; infinity and minus infinity without one."""
        return self._each.get(environment, self).figures.extremes

    def totals(self) -> RunTotals:
        """The sums so far, for charts over time. Cheaper than `summary`, and may be called again and again."""
        self._count_pending()
        incomplete, passes = self._incomplete.values(), self.figures.passes.items()
        verified = sum(n * tasks for (n, _), tasks in passes) + sum(task.verified for task in incomplete)
        passed = sum(n * tasks for (_, n), tasks in passes) + sum(task.passed for task in incomplete)
        seconds = {stage: times.total for stage, times in self._timings.items()}
        counts = counted_outcomes(self.counts)
        rate = passed / verified if verified else None
        return RunTotals(counts, dict(self.failures), self.mean_reward, rate, dict(self._usage), seconds)

    def add(self, rollout: Rollout, cluster: str | None = None) -> None:
        """Count a rollout that has ended. `cluster` names its task if the task's id is ambiguous."""
        self.counts[rollout.outcome] += 1
        if self._each:
            self._add_to_environment(rollout)
        task_id = cluster or rollout.job.task_id
        sums = (self._incomplete.get(task_id) if self._incomplete else None) or _TaskSums()
        sums.seen += 1
        calls, pending = rollout.calls, self._pending
        pending.append((len(calls), rollout.timings, rollout.usage))
        if len(pending) == BATCH:
            self._count_pending()
        if calls and (why := calls[-1].get("prompt_too_long")) is not None:
            self._too_long += 1
            self._first_too_long = self._first_too_long or why
        if len(calls) > 1:
            self._broken.add(calls)
        for error in rollout.tool_errors:
            self.tool_errors[error["tool"], error["exception"], error["where"]] += error["count"]
        if rollout.outcome is Outcome.ENDED_EARLY:
            pass
        elif rollout.error is not None:
            sums.failed += 1
            self.failures[f"{rollout.error.stage}/{rollout.error.kind}"] += 1
        else:
            self.stop_reasons[str(rollout.stop_reason)] += 1
            self.verifiers.add(rollout.job.environment, rollout.receipt)
            self._add_reward(rollout, sums)
        if sums.seen < self.repeats:
            self._incomplete[task_id] = sums
        else:
            if self._incomplete:
                self._incomplete.pop(task_id, None)
            self._count_task(task_id, sums)

    def end_task(self, task_id: str) -> None:
        """No more repeats of a task will come: count the task."""
        for metrics in (self, *self._each.values()):
            if (sums := metrics._incomplete.pop(task_id, None)) is not None:
                metrics._count_task(task_id, sums)

    def _add_to_environment(self, rollout: Rollout) -> None:
        """Count a rollout of a mixed collection in its environment, too."""
        name = rollout.job.environment
        metrics = self._each.get(name)
        if metrics is None:  # a resumed run may hold rollouts of rows that are not in the input now
            metrics = self._each[name] = Metrics(self.repeats)
        metrics.add(rollout)

    def _add_reward(self, rollout: Rollout, sums: _TaskSums) -> None:
        verdict = rollout.verdict
        if verdict is None or rollout.outcome is Outcome.MASKED:
            sums.masked += 1
            return
        reward = verdict.reward
        sums.verified += 1
        sums.total.add(reward)
        sums.passed += self.figures.is_pass(rollout.job.environment, reward)
        self.reward_sum += reward
        self.figures.add_rewards(reward, reward)
        if verdict.components:
            _add_means(self._components, verdict.components)
        if verdict.turn_rewards:
            _add_turns(self._turn_rewards, verdict.turn_rewards)
        if verdict.values:
            _add_means(self._values, verdict.values)

    def _count_task(self, task_id: str, sums: _TaskSums) -> None:
        self._tasks_counted += 1
        if len(self._tasks) < MAX_TASKS_LISTED:
            self._tasks.append((task_id, sums))
        self.figures.add_task(sums.verified, sums.passed, sums.total.value)

    def _count_pending(self) -> None:
        """Count the turns, times and tokens of the last rollouts in one batch (benchmarks/bench.py)."""
        batch, self._pending = self._pending, []
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
        """All metrics as one JSON object. Tasks with missing repeats count with the repeats they have."""
        for task_id, sums in self._incomplete.items():
            self._count_task(task_id, sums)
        self._incomplete.clear()
        self._count_pending()
        counts = counted_outcomes(self.counts)
        return {
            "counts": {"dispatched": sum(counts.values()), **counts},
            "failures": dict(self.failures.most_common()),
            "tool_errors": [
                {"tool": tool, "exception": exception, "where": where, "count": count}
                for (tool, exception, where), count in sorted(self.tool_errors.items(), key=_most_common_first)
            ],
            "prompts_too_long": {"rollouts": self._too_long, "first": self._first_too_long},
            "broken_sequences": self._broken.summary(),
            "reward": {
                **self.figures.reward(),
                "components": _means(self._components),
                "by_turn": [{"mean": turn.mean, "count": turn.count} for turn in self._turn_rewards],
            },
            "values": _means(self._values),
            "pass_reward": self.figures.pass_reward,
            "pass@k": self.figures.pass_at_k(),
            "pass^k": self.figures.pass_hat_k(),
            "pass_rates": self.figures.pass_rates(),
            "stop_reasons": dict(self.stop_reasons.most_common()),
            "several_verifiers": self.verifiers.several(),
            "usage": self._usage,
            "turns": self._turns.summary(),
            "seconds": {"wall": seconds, **{stage: d.summary(SECONDS_SHARES) for stage, d in self._timings.items()}},
            "environments": {name: _without_tasks(metrics.summary()) for name, metrics in sorted(self._each.items())},
            "tasks": [sums.summary(task_id) for task_id, sums in self._tasks],
            "tasks_left_out": self._tasks_counted - len(self._tasks),
        }


def _without_tasks(summary: dict[str, Any]) -> dict[str, Any]:
    """The metrics of one environment in a mixed collection: tasks are listed once, for all environments."""
    left_out = ("environments", "tasks", "tasks_left_out")
    return {key: value for key, value in summary.items() if key not in left_out}


def _most_common_first(counted: tuple[tuple[str, str, str | None], int]) -> tuple[int, str, str, str]:
    """The key that sorts tool errors by count, then by tool, exception and line."""
    (tool, exception, where), count = counted
    return -count, tool, exception, where or ""


def _add_means(sums: dict[str, Mean], values: dict[str, Any]) -> None:
    for name, value in values.items():
        kind = value.__class__
        if kind in NOT_NUMERIC:
            continue
        number = value if kind is bool else finite_number(value)
        if number is not None:
            mean = sums.get(name)
            if mean is None:
                mean = sums[name] = Mean()
            mean.add(number)


def _add_turns(sums: list[Mean], rewards: list[float]) -> None:
    """Add the rewards of a rollout's turns, of the first `MAX_TURNS_LISTED` turns only."""
    for turn, reward in enumerate(rewards[:MAX_TURNS_LISTED]):
        if turn == len(sums):
            sums.append(Mean())
        sums[turn].add(reward)


def _means(sums: dict[str, Mean]) -> dict[str, float]:
    return {name: mean.mean for name, mean in sums.items()}
