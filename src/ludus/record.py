"""The record of a rollout as a row: which of its fields are the task's.

A row of `rollouts.jsonl` holds the task's fields, the verdict's named values and the record's own side by side, because
that is what programs that read such rows expect. Where two of them have the same name the task's gives way and is kept
under `task_fields`, so that the task can be read back exactly.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

Row = dict[str, Any]

#: Fields that a record has beside its task's.
RECORD = frozenset(
    "rollout_id repeat attempt outcome reward verdict_fields reward_components turn_rewards mask receipt task_fields "
    "replay_drift stop_reason rollout_seed response usage timings model_calls parent branch_turn session_seed".split()
)

#: What the record of a rollout that goes on from another says of that: its name, how many of its model calls were
#: taken over, and what its session drew random numbers from.
ORIGIN = ("parent", "branch_turn", "session_seed")

#: What the record of a failed rollout says of its failure.
FAILURE = frozenset({"stage", "kind", "cause", "where", "line"})

#: Fields that a task and its record have in common: they name the task and are no part of its content.
NAMES = frozenset({"task_id", "agent_ref"})

#: What is not the task's in a row that is no record of ours.
_ANSWER = frozenset({"response", "reward", "receipt", "task_fields"})


def is_record(row: Row) -> bool:
    """Whether a row is a record of ours, so that some of its fields are known not to be the task's."""
    return isinstance(row.get("rollout_id"), str) and isinstance(row.get("task_id"), str) and "outcome" in row


def origin_of(row: Row) -> Row | None:
    """Where the rollout of a record goes on from, if it began in the middle of another."""
    return {key: row[key] for key in ORIGIN} if all(map(row.__contains__, ORIGIN)) and is_record(row) else None


def hidden_fields(task: Row, used: Collection[str], task_id: str) -> Row:
    """The fields of a task whose names its record needs for itself, `used` being those of the verdict."""
    plain = not used and RECORD.isdisjoint(task)  # the usual case, and cheap to tell
    hidden = {} if plain else {key: task[key] for key in task if key in used or key in RECORD}
    if task.get("task_id", task_id) != task_id:
        hidden["task_id"] = task["task_id"]
    return hidden


def task_row(row: Row, ours: bool | None = None) -> Row:
    """The row of the task, read back from a record or from any row that has a task's fields and a response.

    A record with a receipt keeps what the verdict hid, and tells exactly. In any other record the verdict's values
    may as well be the task's own, and stay. `ours` tells whether it is a record, where that is known.
    """
    if ours is None:
        ours = is_record(row)
    others = RECORD if ours else _ANSWER
    task = {key: row[key] for key in row if key not in others}
    if ours:
        named = row.get("verdict_fields")
        if named and "receipt" in row and isinstance(named, list):
            _drop(task, named)
        if row["outcome"] == "failed":
            _drop(task, FAILURE)
    hidden = row.get("task_fields")
    if hidden and isinstance(hidden, dict):
        task.update(hidden)
    return task


def _drop(task: Row, keys: Iterable[Any]) -> None:
    for key in keys:
        if isinstance(key, str):
            task.pop(key, None)
