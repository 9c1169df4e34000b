"""Metrics over verified rollouts: statistics of every number, pass@k and majority votes.

A rollout is the answer of `/verify` with `_ng_task_index` and `_ng_rollout_index`. A masked rollout
(`mask_sample: true`) finished, but its reward does not measure the policy: no metric counts it, and `coverage/...`
says how many rollouts were masked.
"""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from nemo_gym._metrics import (
    Numbers,
    columns_of,
    distribution,
    mean_curve,
    number,
    numbers_in,
    pass_curve,
    summary,
)
from nemo_gym.config_types import AggregateMetrics

__all__ = [
    "AggregateMetricsMixin",
    "add_avg_sample_std_dev",
    "compute_aggregate_metrics",
    "compute_pass_majority_metrics",
    "compute_subset_metrics",
    "highest_k_metrics",
]

Rollout = dict[str, Any]
Task = list[Rollout]
Metrics = dict[str, Any]
Scores = dict[str, float]
ScoreFn = Callable[[Rollout], dict[str, Any]]
_Pair = tuple[int, int]

_TASK, _ROLLOUT = "_ng_task_index", "_ng_rollout_index"
_PER_TASK = "per_task_metrics"
#: Entries about the spread of a metric. `highest_k_metrics` never selects them.
_SPREADS = ("std_dev_across_runs", "std_err_across_runs", "avg_sample_std_dev")
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
        "num_rollouts": len(task),
        "expected_num_rollouts": expected,
        "missing_num_rollouts": expected - len(task),
        "reward_profile_completion_pct": 100.0 * len(task) / expected,
        "rollout_infos": infos,
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


def compute_pass_majority_metrics(
    tasks: list[Task], score_fn: ScoreFn | None = None, answer_key: str | None = None
) -> tuple[Metrics, list[list[Scores]], list[str], int]:
    """pass@k, the mean of k rollouts and, with `answer_key`, majority@k: in percent, averaged over tasks.

    Returns the metrics, the scores of each task's rollouts, the names of the scores, and the largest k.
    """
    if not tasks:
        return {}, [], [], 0
    scores = [[_scores(row, score_fn, answer_key) for row in task] for task in tasks]
    names = list(dict.fromkeys(name for task in scores for row in task for name in row))
    max_k = max(map(len, tasks))
    metrics: Metrics = {}
    per_sample = {name: _per_sample(scores, name, max_k) for name in names}
    for name in names:
        values = [column for task in scores if (column := [row[name] for row in task if name in row])]
        metrics |= _averaged(f"pass@{{k}}/{name}", [pass_curve(column) for column in values], max_k)
        mean_curves = [mean_curve(column, max_k) for column in values]
        metrics |= _averaged(f"pass@1[avg-of-{{k}}]/{name}", mean_curves, max_k)
        if answer_key is not None:
            votes = [_majority_curve(*pair, name, answer_key, max_k) for pair in zip(tasks, scores, strict=True)]
            metrics |= _averaged(f"majority@{{k}}/{name}", votes, max_k)
        for k in range(2, len(per_sample[name]) + 1):
            deviation = statistics.stdev(per_sample[name][:k])
            metrics[f"pass@1[avg-of-{k}]/{name}/std_dev_across_runs"] = deviation
            metrics[f"pass@1[avg-of-{k}]/{name}/std_err_across_runs"] = deviation / math.sqrt(k)
    return {**metrics, "per_sample_aggregate": per_sample}, scores, names, max_k


def _scores(row: Rollout, score_fn: ScoreFn | None, answer_key: str | None) -> Scores:
    raw = score_fn(row) if score_fn is not None else {"accuracy": row["reward"]}
    scores = {name: float(value) for name, value in raw.items()}
    return scores if answer_key is None else {**scores, "no_answer": float(row.get(answer_key) is None)}


def _averaged(key: str, curves: list[list[float]], max_k: int) -> Metrics:
    """For each k the mean over the tasks whose curve reaches k, in percent."""
    columns = {k: [curve[k - 1] for curve in curves if len(curve) >= k] for k in range(1, max_k + 1)}
    return {key.replace("{k}", str(k)): 100.0 * statistics.fmean(column) for k, column in columns.items() if column}


def _per_sample(scores: list[list[Scores]], name: str, max_k: int) -> list[float]:
    """For each i the mean score in percent if only the i-th rollouts of the tasks counted."""
    columns = [[task[i][name] for task in scores if i < len(task) and name in task[i]] for i in range(max_k)]
    return [100.0 * statistics.fmean(column) for column in columns if column]


def _majority_curve(task: Task, scores: list[Scores], name: str, answer_key: str, max_k: int) -> list[float]:
    """For each k the score of the most frequent (answer, score) among the first k rollouts; ties are averaged."""
    votes: Counter[tuple[str | float, float]] = Counter()
    curve: list[float] = []
    for row, score in zip(task, scores, strict=True):
        answer = row.get(answer_key)
        if answer is not None and name in score:
            votes[answer if isinstance(answer, (str, int, float)) else repr(answer), score[name]] += 1
        most = max(votes.values(), default=0)
        curve.append(statistics.fmean(value for (_, value), count in votes.items() if count == most) if votes else 0.0)
    return (curve + curve[-1:] * (max_k - len(curve))) if curve else [0.0] * max_k


def compute_subset_metrics(
    tasks: list[Task], subset_key: str, score_fn: ScoreFn | None = None, answer_key: str | None = None
) -> Metrics:
    """The same metrics for each subset of the tasks, as `SUBSET/METRIC`.

    The subset of a task is the field `subset_key` of its first rollout that has it. Empty values are no subset.
    """
    subsets: dict[Any, list[Task]] = {}
    for task in tasks:
        if subset := next((row[subset_key] for row in task if subset_key in row), None):
            subsets.setdefault(subset, []).append(task)
    result: Metrics = {}
    for subset, members in subsets.items():
        metrics, *_ = compute_pass_majority_metrics(members, score_fn, answer_key)
        result |= {f"{subset}/{name}": value for name, value in metrics.items() if name != "per_sample_aggregate"}
    return result


def highest_k_metrics(
    agent_metrics: Metrics,
    pattern: str,
    score_names: Sequence[str] | None = None,
    exclude_names: Sequence[str] | None = None,
) -> Metrics:
    """The entries `PATTERN/NAME` with the highest k, where the pattern has `{k}`: `"pass@1[avg-of-{k}]"`."""
    shape = re.compile(re.escape(pattern).replace(re.escape("{k}"), r"(?P<k>\d+)", 1) + "/(?P<name>.+)")
    by_k: dict[int, Metrics] = {}
    for key, value in agent_metrics.items():
        match = shape.fullmatch(key)
        if match is None or key.endswith(_SPREADS):
            continue
        name = match["name"]
        if (score_names is None or name in score_names) and name not in (exclude_names or ()):
            by_k.setdefault(int(match.groupdict().get("k") or 0), {})[key] = value
    return by_k[max(by_k)] if by_k else {}


def add_avg_sample_std_dev(
    metrics: Metrics, all_score_dicts: list[list[Scores]], score_names: Sequence[str], max_k: int
) -> None:
    """Add `pass@1[avg-of-K]/NAME/avg_sample_std_dev`: the mean over tasks of the deviation of their first k scores."""
    for name in score_names:
        columns = [[float(row[name]) for row in task if name in row] for task in all_score_dicts]
        for k in range(2, max_k + 1):
            deviations = [statistics.stdev(column[:k]) for column in columns if len(column) > 1]
            if deviations:
                metrics[f"pass@1[avg-of-{k}]/{name}/avg_sample_std_dev"] = statistics.fmean(deviations)
