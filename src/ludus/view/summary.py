"""What a run adds up to, computed from its index: the figures of the pages Runs and One run.

Rewards are of completed rollouts. A failed or masked rollout is counted and has no reward in any figure.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ludus.store.figures import RewardFigures, Scale
from ludus.store.verifiers import Verifiers
from ludus.view.curves import shown_k
from ludus.view.facts import STAGES

if TYPE_CHECKING:
    from ludus.store.prices import Price

#: The most tasks of a heat map and points of a plot; more are summed up or sampled.
MAX_CELLS = 2000
MAX_POINTS = 2000
BINS = 20
SPARK = 40

_DONE = "final = 1 AND outcome = 'completed' AND reward IS NOT NULL"

#: The number of bits of a token count: each bin of lengths is twice as long as the previous one, as in a profile.
_BITS = " + ".join(f"(output_tokens >= {1 << bit})" for bit in range(32))


#: Four steps for each doubling of the length, as the columns of the grid of lengths and rewards.
_STEPS = " + ".join(f"(output_tokens >= {round(2 ** (quarter / 4))})" for quarter in range(80))


def headline(
    database: sqlite3.Connection, prices: dict[str, Price], model: str, scales: Sequence[Scale], planned: int = 0
) -> dict[str, Any]:
    """The figures of a run in the list of runs. `scales` say how its environments score, `planned` is its tasks."""
    counts = outcome_counts(database)
    reward, at_k = _rewards(database, scales, planned)
    tokens = database.execute("SELECT sum(input_tokens), sum(output_tokens) FROM rollouts").fetchone()
    return {
        "counts": counts,
        "reward": reward,
        "pass@k": at_k,
        "tokens": {"input": tokens[0], "output": tokens[1]},
        "cost": _cost(database, prices, model, counts["completed"]),
        "spark": _spark(database),
        "environments": [row[0] for row in database.execute("SELECT DISTINCT environment FROM tasks LIMIT 20")],
        "models": [
            row[0] for row in database.execute("SELECT DISTINCT model FROM rollouts WHERE model NOTNULL LIMIT 5")
        ],
    }


def overview(database: sqlite3.Connection) -> dict[str, Any]:
    """The figures of the page of one run."""
    return {
        "histogram": _histogram(database),
        "tasks": _tasks(database),
        "stages": _stages(database),
        "failures": _failures(database),
        "masks": _grouped(database, "mask", "outcome = 'masked' AND final"),
        "tools": _tools(database),
        "stop_reasons": _grouped(database, "stop_reason", "outcome NOT IN ('failed', 'ended_early') AND final"),
        "components": _named(database, "component"),
        "values": _named(database, "value"),
        "lengths": _lengths(database),
        "policies": _grouped(database, "policy", "final AND policy NOTNULL"),
        "turns": _turns(database),
        "bad_lines": _bad_lines(database),
        "tags": _tags(database),
        "several_verifiers": verifiers(database).several(),
    }


def verifiers(database: sqlite3.Connection) -> Verifiers:
    """The verifiers of the rollouts that have one."""
    counted = Verifiers()
    for environment, verifier, count in database.execute(
        "SELECT t.environment, r.verifier, count(*) FROM rollouts r JOIN tasks t ON t.id = r.task "
        "WHERE r.final = 1 AND r.verifier NOTNULL GROUP BY t.environment, r.verifier LIMIT 1000"
    ):
        counted.add(environment, verifier, count)
    return counted


def outcome_counts(database: sqlite3.Connection) -> dict[str, int]:
    """The number of rollouts by outcome. `retried` counts failed attempts that were tried again."""
    ended = dict(database.execute("SELECT outcome, count(*) FROM rollouts WHERE final = 1 GROUP BY outcome").fetchall())
    retried = database.execute("SELECT count(*) FROM rollouts WHERE final = 0 AND outcome = 'failed'").fetchone()[0]
    counts = {name: int(ended.get(name, 0)) for name in ("completed", "masked", "failed", "ended_early")}
    return {"dispatched": sum(counts.values()), **counts, "retried": retried}


def _rewards(
    database: sqlite3.Connection, scales: Sequence[Scale], planned: int
) -> tuple[dict[str, Any], dict[str, float]]:
    """The mean reward with its interval, and pass@k for some k, as `metrics.json` has them.

    pass@k waits until half of the tasks have k completed rollouts: of a run that has begun, the first tasks say little.
    """
    figures = RewardFigures(scales)
    for completed, passed, total, lowest, highest in database.execute(
        f"SELECT count(*), sum(passed), sum(reward), min(reward), max(reward) FROM rollouts WHERE {_DONE} GROUP BY task"
    ):
        figures.add_task(completed, passed, total)
        figures.add_rewards(lowest, highest)
    enough = max(figures.tasks, planned) / 2
    at_k = {k: value for k, value in figures.pass_at_k().items() if figures.tasks_with(int(k)) >= enough}
    return {**figures.reward(), "tasks": figures.tasks}, shown_k(at_k)


def _cost(database: sqlite3.Connection, prices: dict[str, Price], model: str, completed: int) -> Any:
    if not prices:
        return None
    from ludus.store.prices import Costs

    costs = Costs(prices)
    for name, read, cached, written in database.execute(
        "SELECT model, sum(input_tokens), sum(cached_tokens), sum(output_tokens) FROM rollouts GROUP BY model"
    ):
        usage = {"input_tokens": read, "output_tokens": written, "input_tokens_details": {"cached_tokens": cached}}
        costs.add(tuple(label for label in (name, model) if label), usage)
    return costs.summary(completed)


def _spark(database: sqlite3.Connection) -> list[float | None]:
    """The mean reward over time: of equal parts of the completed rollouts, in the order in which they ended."""
    done = database.execute(f"SELECT count(*) FROM rollouts WHERE {_DONE}").fetchone()[0]
    parts: list[float | None] = [None] * min(SPARK, done)
    for part, mean in database.execute(
        f"SELECT place * ? / ? AS part, avg(reward) FROM (SELECT reward, row_number() OVER (ORDER BY id) - 1 AS place "
        f"FROM rollouts WHERE {_DONE}) GROUP BY part",
        (len(parts), done or 1),
    ):
        parts[part] = mean
    return parts


def _histogram(database: sqlite3.Connection) -> dict[str, Any]:
    """How many rewards fall into each bin between `low` and `high`, with the least and the greatest of them."""
    low, high = database.execute(f"SELECT min(reward), max(reward) FROM rollouts WHERE {_DONE}").fetchone()
    if low is None:
        return {"low": 0, "high": 1, "counts": [], "ranges": []}
    low, high = min(low, 0.0), max(high, 1.0)
    counts, ranges = [0] * BINS, list[list[float]]([[]] * BINS)
    for part, count, *ends in database.execute(
        "SELECT min(CAST((reward - ?) / (? - ?) * ? AS INTEGER), ?) AS part, count(*), min(reward), max(reward) "
        f"FROM rollouts WHERE {_DONE} GROUP BY part",
        (low, high, low, BINS, BINS - 1),
    ):
        counts[part], ranges[part] = count, ends
    return {"low": low, "high": high, "counts": counts, "ranges": ranges}


def _tasks(database: sqlite3.Connection) -> dict[str, Any]:
    """The tasks with their pass rates, in the order of the run; with too many, every n-th."""
    from ludus.task import name_of_task

    total = database.execute("SELECT count(*) FROM tasks").fetchone()[0]
    every = max(1, -(-total // MAX_CELLS))
    rows = database.execute(
        "SELECT t.id, t.task_id, t.environment, t.about, sum(outcome = 'completed') AS completed, "
        "sum(passed AND outcome = 'completed') AS passed, sum(outcome = 'failed') AS failed, "
        "sum(outcome = 'masked') AS masked, avg(CASE WHEN outcome = 'completed' THEN reward END) AS mean "
        "FROM tasks t JOIN rollouts r ON r.task = t.id AND r.final = 1 WHERE t.id % ? = 0 GROUP BY t.id ORDER BY t.id",
        (every,),
    )
    cells = [{**dict(row), "name": name_of_task(row["task_id"], row["about"] or "")} for row in rows]
    return {"total": total, "every": every, "cells": cells}


def _stages(database: sqlite3.Connection) -> list[dict[str, Any]]:
    """The seconds of each stage over all rollouts. The time to connect is a part of the model's time, taken out."""
    sums = database.execute(
        f"SELECT {', '.join(f'sum(t_{stage}) AS {stage}_sum, count(t_{stage}) AS {stage}_count' for stage in STAGES)} "
        "FROM rollouts"
    ).fetchone()
    total, known, stages = sums["total_sum"] or 0.0, 0.0, []
    for stage in STAGES[:-1]:
        seconds = sums[f"{stage}_sum"] or 0.0
        if stage == "model":
            seconds = max(0.0, seconds - (sums["connect_sum"] or 0.0))
        known += seconds
        if sums[f"{stage}_count"]:
            stages.append({"stage": stage, "seconds": seconds, "rollouts": sums[f"{stage}_count"]})
    if total > known and sums["total_count"]:
        stages.append({"stage": "other", "seconds": total - known, "rollouts": sums["total_count"]})
    return stages


def _failures(database: sqlite3.Connection) -> list[dict[str, Any]]:
    rows = database.execute(
        "SELECT stage, kind, count(*) AS count, sum(final) AS final, min(cause) AS cause, max(id) AS example, "
        "count(DISTINCT cause) AS causes FROM rollouts WHERE outcome = 'failed' GROUP BY stage, kind "
        "ORDER BY count DESC LIMIT 50"
    )
    return [dict(row) for row in rows]


def _tools(database: sqlite3.Connection) -> list[dict[str, Any]]:
    rows = database.execute(
        "SELECT name, sum(calls) AS calls, sum(errors) AS errors, count(*) AS rollouts FROM tools GROUP BY name "
        "ORDER BY calls DESC, name LIMIT 100"
    )
    return [dict(row) for row in rows]


def _grouped(database: sqlite3.Connection, column: str, where: str) -> list[dict[str, Any]]:
    rows = database.execute(
        f"SELECT {column} AS name, count(*) AS count FROM rollouts WHERE {where} GROUP BY {column} "
        "ORDER BY count DESC LIMIT 50"
    )
    return [dict(row) for row in rows]


def _named(database: sqlite3.Connection, kind: str) -> list[dict[str, Any]]:
    rows = database.execute(
        "SELECT name, avg(value) AS mean, min(value) AS low, max(value) AS high, count(*) AS count FROM named_values "
        "WHERE kind = ? GROUP BY name ORDER BY name LIMIT 100",
        (kind,),
    )
    return [dict(row) for row in rows]


def _lengths(database: sqlite3.Connection) -> dict[str, Any]:
    """Length against reward: the mean of each bin of lengths, and how many rollouts lie in each cell of a grid."""
    bins = database.execute(
        f"SELECT {_BITS} AS bits, count(*) AS count, avg(reward) AS reward, avg(passed) AS passed FROM rollouts "
        f"WHERE {_DONE} AND output_tokens > 0 AND reward NOTNULL GROUP BY bits ORDER BY bits"
    ).fetchall()
    cells = database.execute(
        f"SELECT {_STEPS} AS step, round(reward, 1) AS level, count(*), min(output_tokens), max(output_tokens), "
        f"min(reward), max(reward) FROM rollouts WHERE {_DONE} AND output_tokens > 0 GROUP BY step, level "
        "ORDER BY count(*) DESC LIMIT ?",
        (MAX_POINTS,),
    )
    shown = [
        {
            "from": 1 << (row["bits"] - 1),
            "to": (1 << row["bits"]) - 1,
            "rollouts": row["count"],
            "mean_reward": row["reward"],
            "pass_rate": row["passed"],
        }
        for row in bins
    ]
    names = ("rollouts", "shortest", "longest", "low", "high")
    return {"bins": shown, "cells": [dict(zip(names, tuple(row)[2:], strict=True)) for row in cells]}


def _turns(database: sqlite3.Connection) -> list[dict[str, Any]]:
    rows = database.execute(
        "SELECT turns, count(*) AS count FROM rollouts WHERE final = 1 GROUP BY turns ORDER BY turns LIMIT 100"
    )
    return [dict(row) for row in rows]


def _bad_lines(database: sqlite3.Connection) -> dict[str, Any]:
    total = database.execute("SELECT count(*) FROM bad_lines").fetchone()[0]
    first = database.execute("SELECT file, number, why FROM bad_lines LIMIT 20").fetchall()
    return {"total": total, "first": [dict(row) for row in first]}


def _tags(database: sqlite3.Connection) -> dict[str, int]:
    counted: Counter[str] = Counter()
    for (tags,) in database.execute("SELECT tags FROM notes"):
        counted.update(tags.split())
    return dict(counted.most_common(50))
