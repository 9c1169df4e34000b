"""The learning curve of one run, from its index: points by policy version, and points by equal parts of the run.

A point has a mean and a 95 % interval of every figure. The repeats of a task are one cluster, as in all figures of a
run. A failed or masked rollout counts in the shares of those outcomes and has no reward.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any

from ludus.store.figures import RewardFigures, Scale
from ludus.store.statistics import ClusteredMean

#: Into how many parts a run is divided, the fewest rollouts of a part, and the most points by policy version.
PARTS = 20
FEWEST = 5
MAX_STEPS = 200

#: The most components and values that have a curve.
MAX_NAMED = 40

#: A share lies between these bounds.
SHARE = (0.0, 1.0)

_NUMBER = re.compile(r"(\d{1,15})\D*$")

#: The sums of one task in one point, beside those of the reward: the figure, how many values, their sum.
_SUMS = {
    "length": ("count(r.output_tokens)", "sum(r.output_tokens)"),
    "turns": ("count(*)", "sum(r.turns)"),
    "seconds": ("count(r.t_total)", "sum(r.t_total)"),
    "errors": ("count(*)", "sum(r.tool_errors)"),
    "failed": ("count(*)", "sum(r.outcome = 'failed')"),
    "masked": ("count(*)", "sum(r.outcome = 'masked')"),
}
_SHARES = frozenset({"failed", "masked", "pass@1"})

_REWARDED = "r.outcome = 'completed' AND r.reward NOTNULL"


def curve_of(database: sqlite3.Connection, scales: Sequence[Scale]) -> dict[str, Any]:
    """The points of a run: `steps` by policy version, `parts` in the order in which rollouts ended."""
    database.execute("PRAGMA temp_store = MEMORY")
    database.execute(
        "CREATE TEMP TABLE points (rollout INTEGER PRIMARY KEY, step INTEGER, part INTEGER, whole INTEGER)"
    )
    database.execute("CREATE TEMP TABLE versions (policy TEXT PRIMARY KEY, point INTEGER)")
    steps = _number_versions(database)
    total = database.execute("SELECT count(*) FROM rollouts WHERE final = 1").fetchone()[0]
    database.execute(
        "INSERT INTO points SELECT r.id, v.point, (row_number() OVER (ORDER BY r.id) - 1) * ? / ?, 0 "
        "FROM rollouts r LEFT JOIN versions v ON v.policy = r.policy WHERE r.final = 1",
        (min(PARTS, max(total // FEWEST, 1)), max(total, 1)),
    )
    by_step = _points(database, "step", scales)
    return {
        "steps": [
            {**by_step[number], "step": steps[number][0], "version": steps[number][1]} for number in sorted(by_step)
        ],
        "parts": [point for _, point in sorted(_points(database, "part", scales).items())],
        "whole": _points(database, "whole", scales).get(0),
    }


def shown_k(at_k: dict[str, float]) -> dict[str, float]:
    """pass@k for the powers of two and the largest k."""
    return {k: value for k, value in at_k.items() if int(k) & (int(k) - 1) == 0 or int(k) == len(at_k)}


def _number_versions(database: sqlite3.Connection) -> list[tuple[int, str]]:
    """Give each policy version the number of its point. Returns the last step of each point, and its version.

    A rollout that several versions wrote counts for the last one. Neighbours are merged beyond `MAX_STEPS` points.
    """
    versions: dict[str, int] = {}
    for (policy,) in database.execute("SELECT DISTINCT policy FROM rollouts WHERE final = 1 AND policy NOTNULL"):
        if (number := _NUMBER.search(policy)) is not None:
            versions[policy] = int(number[1])
    names = {step: policy.split()[-1] for policy, step in versions.items()}
    points = {step: place * MAX_STEPS // max(len(names), MAX_STEPS) for place, step in enumerate(sorted(names))}
    database.executemany(
        "INSERT INTO versions VALUES (?, ?)", [(policy, points[step]) for policy, step in versions.items()]
    )
    return list({points[step]: (step, names[step]) for step in sorted(names)}.values())


class _Point:
    """What is summed up for one point."""

    def __init__(self, scales: Sequence[Scale]) -> None:
        self.rewards = RewardFigures(scales)
        self.means: dict[str, ClusteredMean] = {}
        self.rollouts, self.first, self.last = 0, 0, 0
        self.started: float | None = None
        self.verifiers: list[str] = []

    def add(self, name: str, count: int, total: float | None) -> None:
        if count and total is not None:
            self.means.setdefault(name, ClusteredMean()).add(count, total)

    def figures(self) -> dict[str, list[float | None]]:
        """The mean of each figure, and the ends of its interval."""
        reward = self.rewards.reward()
        figures = {"reward": _figure(reward["mean"], reward["ci95"])} if self.rewards.tasks else {}
        for k, value in shown_k(self.rewards.pass_at_k()).items():
            figures[f"pass@{k}"] = _figure(value, None)
        for name, mean in self.means.items():
            figures[name] = _figure(mean.mean, mean.interval(SHARE if name in _SHARES else None))
        return figures

    def to_row(self) -> dict[str, Any]:
        return {
            "rollouts": self.rollouts,
            "first": self.first,
            "last": self.last,
            "started": self.started,
            "verifiers": self.verifiers,
            "figures": self.figures(),
        }


def _points(database: sqlite3.Connection, column: str, scales: Sequence[Scale]) -> dict[int, dict[str, Any]]:
    points: dict[int, _Point] = {}
    for number, *sums in _task_sums(database, column):
        point = points.setdefault(number, _Point(scales))
        rollouts, first, last, started, completed, passed, total, lowest, highest, *others = sums
        point.rollouts += rollouts
        point.first, point.last = min(point.first or first, first), max(point.last, last)
        if started is not None:
            point.started = started if point.started is None else min(point.started, started)
        if completed:
            point.rewards.add_task(completed, passed, total)
            point.rewards.add_rewards(lowest, highest)
            point.add("pass@1", 1, passed / completed)
        for place, name in enumerate(_SUMS):
            point.add(name, others[2 * place], others[2 * place + 1])
    for number, name, count, total in _named_sums(database, column):
        points[number].add(name, count, total)
    for number, verifier in database.execute(
        f"SELECT DISTINCT p.{column}, r.verifier FROM points p JOIN rollouts r ON r.id = p.rollout "
        f"WHERE p.{column} NOTNULL AND r.verifier NOTNULL ORDER BY r.verifier"
    ):
        points[number].verifiers = [*points[number].verifiers, verifier][:8]
    return {number: point.to_row() for number, point in points.items()}


def _task_sums(database: sqlite3.Connection, column: str) -> Iterator[Sequence[Any]]:
    """The sums of each task in each point."""
    sums = ", ".join(part for pair in _SUMS.values() for part in pair)
    return database.execute(
        f"SELECT p.{column}, count(*), min(r.id), max(r.id), min(CASE WHEN r.started > 0 THEN r.started END), "
        f"sum({_REWARDED}), sum({_REWARDED} AND r.passed), sum(CASE WHEN {_REWARDED} THEN r.reward END), "
        f"min(CASE WHEN {_REWARDED} THEN r.reward END), max(CASE WHEN {_REWARDED} THEN r.reward END), {sums} "
        f"FROM points p JOIN rollouts r ON r.id = p.rollout WHERE p.{column} NOTNULL GROUP BY p.{column}, r.task"
    )


def _named_sums(database: sqlite3.Connection, column: str) -> Iterator[Sequence[Any]]:
    """The components and values of completed rollouts, by point and task: the point, the figure, its count and sum."""
    named = "SELECT DISTINCT kind, name FROM named_values ORDER BY kind, name LIMIT ?"
    for kind, name in database.execute(named, (MAX_NAMED,)).fetchall():
        for number, count, total in database.execute(
            f"SELECT p.{column}, count(*), sum(v.value) FROM named_values v JOIN rollouts r ON r.id = v.rollout "
            f"JOIN points p ON p.rollout = r.id WHERE v.kind = ? AND v.name = ? AND p.{column} NOTNULL "
            f"AND r.outcome = 'completed' GROUP BY p.{column}, r.task",
            (kind, name),
        ):
            yield number, f"{kind}:{name}", count, total


def _figure(mean: float | None, interval: Sequence[float] | None) -> list[float | None]:
    return [mean, *(interval or (None, None))]
