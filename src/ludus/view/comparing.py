"""Runs beside each other: the paired statistics of `ludus compare` against the first, from the indexes of all."""

from __future__ import annotations

from string import ascii_uppercase
from typing import Any

from ludus.compare.comparison import Comparison, compare
from ludus.compare.scores import LARGEST, Scores, TaskScore, warnings_about
from ludus.outcome import PASS_REWARD
from ludus.task import name_of_task
from ludus.view.live_run import LiveRun
from ludus.view.summary import verifiers

#: The most runs of one comparison, and the most tasks that are listed, those with the largest difference first.
MAX_RUNS = 12
MAX_TASKS = 500


def comparison_payload(runs: list[LiveRun]) -> dict[str, Any]:
    """Every run compared with the first, task by task."""
    scores = [_scores(run) for run in runs]
    first = scores[0]
    sides = []
    for run, side in zip(runs, scores, strict=True):
        comparison = compare(first, side) if side is not first else None
        result = None if comparison is None else _result(comparison)
        counts = {"scored": side.scored, "failed": side.failed, "masked": side.masked}
        sides.append({"key": run.run.key, "name": run.run.name, **counts, "result": result})
    tasks: list[dict[str, Any]] = [
        {"task_id": name, "means": [task.mean for task in scored], "counts": [task.count for task in scored]}
        for name in first.tasks
        if len(scored := [task for side in scores if (task := side.tasks.get(name)) and task.count]) == len(scores)
    ]
    tasks.sort(key=lambda task: min(task["means"]) - max(task["means"]))
    names = _names(runs[0], [task["task_id"] for task in tasks[:MAX_TASKS]])
    others = zip(scores[1:], ascii_uppercase[1:], strict=False)
    warnings = [warning for side, letter in others for warning in warnings_about(first, side, letter)]
    return {
        "runs": sides,
        "warnings": list(dict.fromkeys(warnings)),
        "tasks_total": len(tasks),
        "tasks": [{**task, "name": names.get(task["task_id"], task["task_id"])} for task in tasks[:MAX_TASKS]],
    }


def _result(comparison: Comparison) -> dict[str, Any]:
    return {
        "tasks": comparison.tasks,
        "mean_a": comparison.mean_a,
        "mean_b": comparison.mean_b,
        "pass_rate_a": comparison.pass_rate_a,
        "pass_rate_b": comparison.pass_rate_b,
        "difference": comparison.difference,
        "ci95": list(comparison.interval) if comparison.interval is not None else None,
        "found": comparison.found,
        "mcnemar": comparison.mcnemar,
        "detectable": comparison.detectable,
        "sentence": comparison.sentence(),
    }


def _names(run: LiveRun, task_ids: list[str]) -> dict[str, str]:
    """What tables call these tasks."""
    with run.index.reading() as database:
        rows = database.execute(
            f"SELECT task_id, about FROM tasks WHERE task_id IN ({', '.join('?' * len(task_ids))})", task_ids
        )
        return {task_id: name_of_task(task_id, about or "") for task_id, about in rows}


def _scores(run: LiveRun) -> Scores:
    scores = Scores()
    with run.index.reading() as database:
        for task_id, completed, total, passed, binary in database.execute(
            "SELECT t.task_id, sum(r.outcome = 'completed'), sum(CASE WHEN r.outcome = 'completed' THEN r.reward END), "
            "sum(r.outcome = 'completed' AND r.passed), min(r.outcome != 'completed' OR r.reward IN (0, 1)) "
            "FROM rollouts r JOIN tasks t ON t.id = r.task WHERE r.final = 1 "
            "AND (r.reward IS NULL OR abs(r.reward) <= ?) "
            "GROUP BY r.task",
            (LARGEST,),
        ):
            task = scores.tasks.setdefault(task_id, TaskScore())
            task.count += completed
            task.total += total or 0.0
            task.passed += passed
            task.binary = task.binary and bool(binary)
        counts = dict(
            database.execute("SELECT outcome, count(*) FROM rollouts WHERE final = 1 GROUP BY outcome").fetchall()
        )
        scores.verifiers = verifiers(database)
    scores.scored, scores.failed, scores.masked = (counts.get(name, 0) for name in ("completed", "failed", "masked"))
    scores.identity = run.run.identity or None
    scores.pass_rewards = set(run.run.pass_rewards.values()) or {PASS_REWARD}
    return scores
