"""Sums over all rollouts of one environment, or of all environments."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from ludus.collection.metrics import Metrics
from ludus.dialects.usage import add_usage, cached_tokens, token_count
from ludus.outcome import Verdict
from ludus.rollout import Rollout
from ludus.store.figures import Scale
from ludus.store.prices import Costs, Price
from ludus.store.statistics import ClusteredMean, Comoments
from ludus_bench.profile.components import Components
from ludus_bench.profile.lengths import Lengths
from ludus_bench.profile.tasks import TaskProfile, items_of

#: How many tools are listed, those with the most calls first.
MAX_TOOLS = 100

#: The fields of `Metrics.summary` that a profile repeats as they are.
_FROM_METRICS = ("counts", "failures", "reward", "pass_reward", "pass@k", "pass^k", "pass_rates", "stop_reasons")

#: Stages in the order in which a rollout goes through them.
_STAGES = ("open", "connect", "model", "tool", "user", "verify", "close", "total")

_UNKNOWN_TOOL = "tools that were not offered"


class Sums:
    """Running sums. The metrics of a collection are computed by the same class as in `metrics.json`."""

    def __init__(self, scales: list[Scale], prices: dict[str, Price]) -> None:
        self._metrics = Metrics(2**62, scales, by_environment=False)
        self._costs = Costs(prices)
        self._calls: Counter[str] = Counter()
        self._components, self._lengths = Components(), Lengths()
        self._usage: dict[str, dict[str, Any]] = {}  # by stage
        self._retried = 0

    def add_scale(self, scale: Scale) -> None:
        """Declare how an environment without a run.json scores."""
        self._metrics.add_scale(scale)

    def add_attempt(self, rollout: Rollout, models: tuple[str, ...], *, is_last: bool) -> None:
        """Count the usage of an attempt. Failed attempts that were retried cost tokens too."""
        self._retried += not is_last
        for stage, names, usage in usage_by_stage(rollout, models):
            add_usage(self._usage.setdefault(stage, {}), usage)
            self._costs.add(names, usage)

    def add_rollout(self, rollout: Rollout, cluster: str) -> None:
        """Count a rollout as it ended. `cluster` tells its task from those of other environments."""
        self._metrics.add(rollout, cluster)
        response = rollout.response
        calls = [item for item in items_of(rollout) if item.get("type") == "function_call"]
        if response is not None and calls:
            offered = {str(tool.get("name")) for tool in response.tools or () if isinstance(tool, dict)}
            for call in calls:
                name = str(call.get("name"))
                self._calls[name if name in offered else _UNKNOWN_TOOL] += 1

    def add_reward(self, verdict: Verdict, tokens: int, characters: int, passed: bool) -> None:
        """Count the reward of a completed rollout."""
        if verdict.components:
            self._components.add(verdict.components, verdict.reward)
        self._lengths.add(tokens, characters, verdict.reward, passed)

    def summary(self, tasks: list[TaskProfile]) -> dict[str, Any]:
        """All figures as one JSON object. `tasks` are the tasks of these rollouts."""
        metrics = self._metrics.summary()
        seconds = {stage: times for stage, times in metrics["seconds"].items() if stage != "wall"}
        return {
            **{key: metrics[key] for key in _FROM_METRICS},
            "retried_attempts": self._retried,
            "tasks": len(tasks),
            "pass_rate": _pass_rate(tasks),
            "variance": _variance(tasks),
            "learning_signal": _learning_signal(tasks),
            "tokens": {stage: _tokens(usage) for stage, usage in self._usage.items()},
            "seconds": {stage: seconds[stage] for stage in (*_STAGES, *seconds) if stage in seconds},
            "turns": metrics["turns"],
            "cost": self._costs.summary(metrics["counts"]["completed"]),
            "tools": self._tools(metrics["tool_errors"]),
            "tool_errors": metrics["tool_errors"],
            "components": self._components.summary(),
            "length": self._lengths.summary(tasks),
        }

    def _tools(self, errors: list[dict[str, Any]]) -> dict[str, dict[str, int]]:
        raised: Counter[str] = Counter()
        for error in errors:
            raised[error["tool"]] += error["count"]
        listed = sorted(self._calls, key=lambda name: (-self._calls[name], name))[:MAX_TOOLS]
        return {name: {"calls": self._calls[name], "errors": raised[name]} for name in listed}


def usage_by_stage(rollout: Rollout, models: tuple[str, ...]) -> Iterable[tuple[str, tuple[str, ...], dict[str, Any]]]:
    """The tokens that an attempt used: the stage, the names of the model that were asked, and the usage.

    `models` are the names of the policy. A simulated user reports its tokens under `usage.user`, and a verifier with a
    judge those of its judge as the value `judge_usage` of its verdict.
    """
    if rollout.usage:
        yield "model", models, {key: value for key, value in rollout.usage.items() if key != "user"}
        if isinstance(user := rollout.usage.get("user"), dict):
            yield "user", ("user",), user
    judge = rollout.verdict.values.get("judge_usage") if rollout.verdict is not None else None
    if judge and isinstance(judge, dict):
        yield "verify", ("judge",), judge


def _tokens(usage: dict[str, Any]) -> dict[str, int]:
    details = usage.get("output_tokens_details")
    return {
        "input": token_count(usage, "input_tokens"),
        "cached": cached_tokens(usage),
        "output": token_count(usage, "output_tokens"),
        "reasoning": token_count(details, "reasoning_tokens") if isinstance(details, dict) else 0,
    }


def _pass_rate(tasks: list[TaskProfile]) -> dict[str, Any]:
    """The pass rate of completed rollouts. The repeats of a task are one cluster."""
    rate = ClusteredMean()
    for task in tasks:
        if task.completed:
            rate.add(task.completed, task.passed)
    interval = rate.interval((0.0, 1.0))
    return {"mean": rate.mean, "ci95": list(interval) if interval is not None else None}


def _variance(tasks: list[TaskProfile]) -> dict[str, float | None]:
    """The variance of rewards: of all, and the mean of the variances within tasks with two or more rewards."""
    overall, within = Comoments(), [task.characters.variance_y for task in tasks]
    for task in tasks:
        overall.merge(task.characters)
    known = [variance for variance in within if variance is not None]
    return {"overall": overall.variance_y, "within_tasks": sum(known) / len(known) if known else None}


def _learning_signal(tasks: list[TaskProfile]) -> dict[str, Any]:
    """A group teaches if its rewards differ: with equal rewards, all advantages are 0."""
    groups, signals = sum(task.groups for task in tasks), sum(task.signals for task in tasks)
    return {"groups": groups, "with_signal": signals, "share": signals / groups if groups else None}
