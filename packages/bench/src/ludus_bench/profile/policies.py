"""Two policies on the same tasks: the paired statistics of `ludus compare`, and the tasks that moved most."""

from __future__ import annotations

from typing import Any

from ludus.compare.comparison import compare
from ludus.compare.scores import Scores, warnings_about
from ludus.errors import UserError
from ludus_bench.profile.profile import Profile
from ludus_bench.profile.tasks import TaskProfile

#: How many tasks are listed that the second policy passes more often, and how many that it passes less often.
MAX_MOVED = 10


def compare_policies(a: Profile, b: Profile, pass_reward: float | None = None) -> dict[str, Any]:
    """Compare the second policy with the first. Each profile is of one run."""
    for profile in (a, b):
        if len(profile.runs) != 1:
            raise UserError(f"{len(profile.runs)} runs are compared with one", "Name one run, and one for --compare")
    scores = Scores.read(a.runs[0], pass_reward), Scores.read(b.runs[0], pass_reward)
    comparison = compare(*scores)
    if comparison is None:
        raise UserError(f"no task has a reward in both {a.runs[0]} and {b.runs[0]}", "Collect both from the same rows")
    moved = _moved(a, b)
    return {
        "a": str(a.runs[0]),
        "b": str(b.runs[0]),
        "tasks": comparison.tasks,
        "difference": comparison.difference,
        "ci95": list(comparison.interval) if comparison.interval is not None else None,
        "mcnemar": comparison.mcnemar,
        "detectable": comparison.detectable,
        "sentence": comparison.sentence(),
        "warnings": warnings_about(*scores),
        "passed_more_often": sum(task["change"] > 0 for task in moved),
        "passed_less_often": sum(task["change"] < 0 for task in moved),
        "passed_as_often": sum(task["change"] == 0 for task in moved),
        "moved": [task for task in (*moved[:MAX_MOVED], *moved[MAX_MOVED:][-MAX_MOVED:]) if task["change"]],
    }


def pass_rates_of_both(a: Profile, b: Profile) -> list[tuple[str, float, float]]:
    """The id and both pass rates of each task that has one in both."""
    return [(task.task_id, of_a, of_b) for task, of_a, of_b in _tasks_of_both(a, b)]


def _tasks_of_both(a: Profile, b: Profile) -> list[tuple[TaskProfile, float, float]]:
    pairs = ((task, b.tasks.get(key)) for key, task in a.tasks.items())
    return [
        (task, task.pass_rate, other.pass_rate)
        for task, other in pairs
        if other is not None and task.pass_rate is not None and other.pass_rate is not None
    ]


def _moved(a: Profile, b: Profile) -> list[dict[str, Any]]:
    """The tasks of both, those that the second policy passes more often first."""
    rows = [
        {
            "task_id": task.task_id,
            "name": task.name,
            "pass_rate_a": of_a,
            "pass_rate_b": of_b,
            "change": of_b - of_a,
        }
        for task, of_a, of_b in _tasks_of_both(a, b)
    ]
    return sorted(rows, key=lambda row: (-float(row["change"]), str(row["task_id"])))
