"""Metrics over verified rollouts: statistics of every number, pass@k and majority votes.

A rollout is the answer of `/verify` with `_ng_task_index` and `_ng_rollout_index`. A masked rollout
(`mask_sample: true`) finished, but its reward does not measure the policy: no metric counts it, and `coverage/...`
says how many rollouts were masked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from ludus.runtime.encoding import encode
from ludus.store.drafts import write_whole
from nemo_gym._metrics import Numbers, columns_of, distribution, number, numbers_in, summary
from nemo_gym._pass_metrics import (
    Metrics,
    Rollout,
    Task,
    add_avg_sample_std_dev,
    compute_pass_majority_metrics,
    compute_subset_metrics,
    highest_k_metrics,
)
from nemo_gym.config_types import AggregateMetrics

__all__ = [
    "AggregateMetricsMixin",
    "RewardProfiler",
    "add_avg_sample_std_dev",
    "compute_aggregate_metrics",
    "compute_pass_majority_metrics",
    "compute_subset_metrics",
    "highest_k_metrics",
]

_Pair = tuple[int, int]

_TASK, _ROLLOUT = "_ng_task_index", "_ng_rollout_index"
_PER_TASK = "per_task_metrics"
#: The names across repeats of the statistics that `distribution` computes.
_ACROSS = {name: name for name in ("mean", "median", "std", "min", "max", "ci_low_95", "ci_high_95")} | {"sem": "se"}


class AggregateMetricsMixin:
    """The hooks by which a server adds metrics of its own and selects the most important ones."""

    def compute_metrics(self, tasks: list[Task]) -> Metrics:
        """More metrics over all rollouts, grouped by task. `per_task_metrics` is merged into the tasks' entries."""
        return {}

    def compute_repeat_metrics(self, tasks: list[Task]) -> Metrics:
        """More metrics of one repeat. Each task has the rollout with that rollout index only."""
        return {}

    def get_key_metrics(self, agent_metrics: Metrics) -> Metrics:
        """The most important metrics: by default the means."""
        return {name: value for name, value in agent_metrics.items() if name.startswith("mean/")}


def compute_aggregate_metrics(
    verify_responses: list[Rollout],
    compute_metrics_fn: Callable[[list[Task]], Metrics] | None = None,
    get_key_metrics_fn: Callable[[Metrics], Metrics] | None = None,
    compute_repeat_metrics_fn: Callable[[list[Task]], Metrics] | None = None,
) -> AggregateMetrics:
    """Metrics for each task, for each repeat and for all rollouts.

    Raises `KeyError` for a rollout without its two indices, and `ValueError` for two rollouts with the same pair.
    """
    if not verify_responses:
        return AggregateMetrics()
    hooks = AggregateMetricsMixin()
    every_task = _by_task(verify_responses)
    tasks = [measured for task in every_task if (measured := [row for row in task if not row.get("mask_sample")])]
    coverage = _coverage(every_task, tasks)
    if not tasks:
        return AggregateMetrics(agent_metrics=coverage, key_metrics=dict(coverage))
    rows = [row for task in tasks for row in task]
    columns = {_pair(row): _numbers(row) for row in rows}
    groups = [_group(task, columns, expected=max(map(len, tasks))) for task in tasks]
    repeats, across = _repeats(tasks, columns, compute_repeat_metrics_fn or hooks.compute_repeat_metrics)
    custom = dict((compute_metrics_fn or hooks.compute_metrics)(tasks))
    per_task = {entry[_TASK]: entry for entry in custom.pop(_PER_TASK, None) or ()}
    num_repeats = {"num_repeats": len({row[_ROLLOUT] for row in rows})}
    agent_metrics = {**summary(list(columns.values())), **num_repeats, **across, **custom, **coverage}
    key_metrics = (get_key_metrics_fn or hooks.get_key_metrics)(agent_metrics)
    return AggregateMetrics(
        group_level_metrics=[{**group, **per_task.get(group[_TASK], {})} for group in groups],
        repeat_level_metrics=repeats,
        agent_metrics=agent_metrics,
        key_metrics={**key_metrics, **coverage},
        perf_summary=summary([numbers_in(row["ng_perf"]) for row in rows if row.get("ng_perf")]) or None,
    )


def _by_task(responses: list[Rollout]) -> list[Task]:
    """The rollouts of each task. Tasks and their rollouts are in the order of their indices."""
    tasks: dict[int, dict[int, Rollout]] = {}
    for row in responses:
        task, rollout = row[_TASK], row[_ROLLOUT]
        if rollout in tasks.setdefault(task, {}):
            raise ValueError(f"two responses have {_TASK} {task} and {_ROLLOUT} {rollout}: pass each rollout once")
        tasks[task][rollout] = row
    return [[row for _, row in sorted(rollouts.items())] for _, rollouts in sorted(tasks.items())]


def _coverage(every_task: list[Task], measured: list[Task]) -> dict[str, int]:
    """How many rollouts and tasks were masked; empty if none was."""
    count = sum(map(len, measured))
    masked = sum(map(len, every_task)) - count
    names = ("measured_rollouts", "masked_rollouts", "measured_tasks", "fully_masked_tasks")
    counts = (count, masked, len(measured), len(every_task) - len(measured))
    return {f"coverage/{name}": value for name, value in zip(names, counts, strict=True)} if masked else {}


def _pair(row: Rollout) -> _Pair:
    return row[_TASK], row[_ROLLOUT]


def _numbers(row: Rollout) -> Numbers:
    """The columns of a rollout: its own numbers and those of its token usage."""
    response = row.get("response")
    return numbers_in(response.get("usage") if isinstance(response, dict) else None) | numbers_in(row)


def _group(task: Task, columns: dict[_Pair, Numbers], expected: int) -> Metrics:
    """The entry of a task."""
    infos = [
        {
            "rollout_id": f"{row[_TASK]}:{row[_ROLLOUT]}",
            _TASK: row[_TASK],
            _ROLLOUT: row[_ROLLOUT],
            "reward": row.get("reward"),
            **columns[_pair(row)],
        }
        for row in task
    ]
    return {
        _TASK: task[0][_TASK],
        "sample": {"agent_ref": {"name": "agent"}},
        **summary([columns[_pair(row)] for row in task]),
        **_completion(len(task), expected),
        "rollout_infos": infos,
    }


def _completion(count: int, expected: int) -> Metrics:
    """How many rollouts of a task there are, and how many are missing."""
    return {
        "num_rollouts": count,
        "expected_num_rollouts": expected,
        "missing_num_rollouts": expected - count,
        "reward_profile_completion_pct": 100.0 * count / expected,
    }


def _repeats(
    tasks: list[Task], columns: dict[_Pair, Numbers], custom_fn: Callable[[list[Task]], Metrics]
) -> tuple[list[Metrics], Metrics]:
    """The entry of each repeat, and the statistics across repeats. Both are empty for a single repeat."""
    by_index: dict[int, list[Task]] = {}
    for task in tasks:
        for row in task:
            by_index.setdefault(row[_ROLLOUT], []).append([row])
    if len(by_index) < 2:
        return [], {}
    entries, means, customs = list[Metrics](), list[Numbers](), list[Metrics]()
    for index, repeat in sorted(by_index.items()):
        values_of = columns_of(columns[_pair(row)] for (row,) in repeat)
        spread = {name: distribution(values) for name, values in values_of.items()}
        figures = {f"{statistic}/{name}": value for name, of in spread.items() for statistic, value in of.items()}
        counts = {_ROLLOUT: index, "sample_count": len(repeat), "missing_count": len(tasks) - len(repeat)}
        means.append({name: of["mean"] for name, of in spread.items()})
        customs.append(custom_fn(repeat))
        entries.append({**counts, **figures, **customs[-1]})
    across = columns_of(means)
    for key in dict.fromkeys(name for custom in customs for name in custom):
        values = [number(custom.get(key)) for custom in customs]
        name = key.removeprefix("mean/")
        across.pop(name, None)
        if None not in values:
            across[name] = [value for value in values if value is not None]
    metrics = {
        f"{_ACROSS[statistic]}_across_repeats/{name}": value
        for name, values in across.items()
        for statistic, value in distribution(values).items()
        if statistic in _ACROSS
    }
    return entries, metrics


class RewardProfiler:
    """The profile of a collection: the metrics of every task, of every agent and of every repeat."""

    def profile_from_data(
        self, rows: Iterable[Mapping[str, Any]], results: Iterable[Rollout]
    ) -> tuple[list[Metrics], list[Metrics], list[Metrics]]:
        """The entries of tasks, agents and repeats, from the rows as they were sent and their verified rollouts.

        Results without their indices belong to the rows at their places.
        """
        rows, results = list(rows), list(results)
        if len(rows) == len(results):
            stamps = ({key: row[key] for key in (_TASK, _ROLLOUT, "agent_ref") if key in row} for row in rows)
            results = [{**stamp, **result} for stamp, result in zip(stamps, results, strict=True)]
        sent: dict[int, list[Mapping[str, Any]]] = {}
        for row in rows:
            sent.setdefault(row[_TASK], []).append(row)
        by_agent: dict[str, list[Rollout]] = {}
        for result in results:
            reference = result.get("agent_ref") or (sent.get(result[_TASK]) or [{}])[0].get("agent_ref") or {}
            by_agent.setdefault(str(reference.get("name", "agent")), []).append(result)
        groups, agents, repeats = list[Metrics](), list[Metrics](), list[Metrics]()
        for name, played in by_agent.items():
            reference = {"agent_ref": {"name": name}}
            metrics = compute_aggregate_metrics(played)
            for group in metrics.group_level_metrics:
                of_task = sent.get(group[_TASK], [])
                expected = max(len(of_task), group["num_rollouts"])
                groups.append({**group, **_completion(group["num_rollouts"], expected)})
                groups[-1]["sample"] = dict(of_task[0]) if of_task else reference
            agents.append({**reference, **metrics.agent_metrics})
            repeats += [{**reference, **repeat} for repeat in metrics.repeat_level_metrics]
        return sorted(groups, key=lambda group: group[_TASK]), agents, repeats

    def write_to_disk(
        self,
        group_level_metrics: list[Metrics],
        agent_level_metrics: list[Metrics],
        repeat_level_metrics: list[Metrics],
        base_output_fpath: Path | str,
    ) -> tuple[Path, Path, Path]:
        """Write `X_reward_profiling.jsonl`, `X_agent_metrics.json` and `X_repeat_metrics.json` beside the rollouts."""
        base = Path(base_output_fpath)
        names = ("reward_profiling.jsonl", "agent_metrics.json", "repeat_metrics.json")
        tasks, agents, repeats = (base.with_name(f"{base.stem}_{name}") for name in names)
        write_whole(tasks, b"".join(encode(group) + b"\n" for group in group_level_metrics))
        write_whole(agents, encode(agent_level_metrics) + b"\n")
        write_whole(repeats, encode(repeat_level_metrics) + b"\n")
        return tasks, agents, repeats
