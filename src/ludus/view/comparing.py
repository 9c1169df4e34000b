"""Two runs beside each other: the paired statistics of `ludus compare`, from the indexes of both."""

from __future__ import annotations

from typing import Any

from ludus.compare.comparison import compare
from ludus.compare.scores import LARGEST, Scores, TaskScore, warnings_about
from ludus.outcome import PASS_REWARD
from ludus.task import name_of_task
from ludus.view.live_run import LiveRun
from ludus.view.summary import verifiers

#: The most tasks that are listed, those with the largest difference first.
MAX_TASKS = 500


def comparison_payload(a: LiveRun, b: LiveRun) -> dict[str, Any]:
    """B compared with A, task by task."""
    scores = _scores(a), _scores(b)
    comparison = compare(*scores)
    sides = [
        {"key": run.run.key, "name": run.run.name, "scored": side.scored, "failed": side.failed, "masked": side.masked}
        for run, side in zip((a, b), scores, strict=True)
    ]
    result: dict[str, Any] = {
        "a": sides[0],
        "b": sides[1],
        "warnings": warnings_about(*scores),
        "tasks": [],
        "result": None,
    }
    if comparison is None:
        return result
    result["result"] = {
        "tasks": comparison.tasks,
        "mean_a": comparison.mean_a,
        "mean_b": comparison.mean_b,
        "pass_rate_a": comparison.pass_rate_a,
        "pass_rate_b": comparison.pass_rate_b,
        "difference": comparison.difference,
        "ci95": list(comparison.interval) if comparison.interval is not None else None,
        "mcnemar": comparison.mcnemar,
        "detectable": comparison.detectable,
        "sentence": comparison.sentence(),
    }
    both: list[dict[str, Any]] = [
        {"task_id": name, "a": of_a.mean, "b": of_b.mean, "n_a": of_a.count, "n_b": of_b.count}
        for name, of_a in scores[0].tasks.items()
        if of_a.count and (of_b := scores[1].tasks.get(name)) is not None and of_b.count
    ]
    both.sort(key=lambda task: -abs(task["b"] - task["a"]))
    listed = both[:MAX_TASKS]
    names = _names(a, [task["task_id"] for task in listed])
    result["tasks"] = [{**task, "name": names.get(task["task_id"], task["task_id"])} for task in listed]
    return result


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
