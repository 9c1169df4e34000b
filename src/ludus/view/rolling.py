"""The reward over the time of one run: a rolling mean with its 95 % interval.

A mean covers a tenth of the completed rollouts, and at least `FEWEST` of them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from itertools import groupby
from typing import Any, NamedTuple

from ludus.store.figures import RewardFigures, Scale

#: Into how many parts the completed rollouts are divided, how many of them one mean covers, and the fewest rollouts.
PARTS = 40
WINDOW = 4
FEWEST = 20

_DONE = "final = 1 AND outcome = 'completed' AND reward NOTNULL"


class _TaskSum(NamedTuple):
    """The completed rollouts of one task in one part."""

    task: int
    completed: int
    passed: int
    total: float
    lowest: float
    highest: float
    first: int
    last: int


def rolling_reward(database: sqlite3.Connection, scales: Sequence[Scale]) -> list[dict[str, Any]]:
    """The mean reward at the end of each part, over the last parts; empty for fewer rollouts than parts.

    `first` and `last` are the numbers of the window's rollouts, and `share` is how much of the run has gone by.
    """
    done = database.execute(f"SELECT count(*) FROM rollouts WHERE {_DONE}").fetchone()[0]
    if done < PARTS:
        return []
    rows = database.execute(
        "SELECT place * ? / ? AS part, task, count(*), sum(passed), sum(reward), min(reward), max(reward), min(id), "
        "max(id) FROM (SELECT id, task, passed, reward, row_number() OVER (ORDER BY id) - 1 AS place "
        f"FROM rollouts WHERE {_DONE}) GROUP BY part, task",
        (PARTS, done),
    )
    parts = [[_TaskSum(*row[1:]) for row in part] for _, part in groupby(rows, key=lambda row: row[0])]
    window = max(WINDOW, -(-FEWEST * PARTS // done))
    return [
        _window([row for part in parts[end - window : end] for row in part], scales, end / PARTS)
        for end in range(window, len(parts) + 1)
    ]


def _window(rows: list[_TaskSum], scales: Sequence[Scale], share: float) -> dict[str, Any]:
    figures, tasks = RewardFigures(scales), dict[int, tuple[int, int, float]]()
    for row in rows:
        completed, passed, total = tasks.get(row.task, (0, 0, 0.0))
        tasks[row.task] = completed + row.completed, passed + row.passed, total + row.total
        figures.add_rewards(row.lowest, row.highest)
    for sums in tasks.values():
        figures.add_task(*sums)
    reward = figures.reward()
    low, high = reward["ci95"] or (None, None)
    ends = {"first": min(row.first for row in rows), "last": max(row.last for row in rows)}
    ends["rollouts"] = sum(row.completed for row in rows)
    return {"share": share, "mean": reward["mean"], "low": low, "high": high, **ends}
