"""pass@k, majority votes and their spread: what the verifiers of authors compute over tasks."""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from nemo_gym._metrics import mean_curve, pass_curve

Rollout = dict[str, Any]
Task = list[Rollout]
Metrics = dict[str, Any]
Scores = dict[str, float]
ScoreFn = Callable[[Rollout], dict[str, Any]]

#: Entries about the spread of a metric. `highest_k_metrics` never selects them.
_SPREADS = ("std_dev_across_runs", "std_err_across_runs", "avg_sample_std_dev")


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
