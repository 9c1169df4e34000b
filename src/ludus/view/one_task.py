"""One task over all runs of a folder: what each run earned for it, with the way to its rollouts."""

from __future__ import annotations

import sqlite3
from typing import Any

from ludus.errors import UserError
from ludus.store.figures import RewardFigures
from ludus.view.experiment import ExperimentRun, members_of
from ludus.view.live import LiveRuns

#: The most rollouts of the task that are listed of one run.
MAX_ROLLOUTS = 64


def task_payload(runs: LiveRuns, at: str, task: str, environment: str) -> dict[str, Any]:
    """The rollouts of a task in every run that has some. An empty environment stands for any."""
    lines, asked = [], ""
    for member in members_of(runs, at):
        with member.run.index.reading() as database:
            rows = database.execute(
                "SELECT t.about, r.id, r.repeat, r.outcome, r.reward, r.passed FROM tasks t JOIN rollouts r "
                "ON r.task = t.id AND r.final = 1 WHERE t.task_id = ? AND (? = '' OR t.environment = ?) "
                "ORDER BY r.repeat, r.id",
                (task, environment, environment),
            ).fetchall()
        if rows:
            asked = asked or rows[0]["about"]
            lines.append(_line(member, rows))
    if not lines:
        raise UserError(f"no run of this folder has the task {task!r:.100}", "ludus show RUN lists the tasks of a run")
    return {"at": at, "task": task, "environment": environment, "asked": asked, "runs": lines}


def _line(member: ExperimentRun, rows: list[sqlite3.Row]) -> dict[str, Any]:
    figures = RewardFigures(member.run.run.scales)
    rewarded = [row for row in rows if row["outcome"] == "completed" and row["reward"] is not None]
    passed = sum(row["passed"] for row in rewarded)
    figures.add_task(len(rewarded), passed, sum(row["reward"] for row in rewarded))
    fields = ("id", "repeat", "outcome", "reward")
    return {
        "key": member.run.run.key,
        "name": member.name,
        "step": member.step,
        "rollouts": len(rows),
        "completed": len(rewarded),
        "passed": passed,
        "mean": figures.reward()["mean"],
        "listed": [{field: row[field] for field in fields} for row in rows[:MAX_ROLLOUTS]],
    }
