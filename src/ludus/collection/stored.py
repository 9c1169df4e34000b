"""Stored rows: the task that a row holds, and the row that a new verdict makes of it.

A row is a rollout that we wrote, or any object with a task's fields and a `response`. It comes from a file that others
may have touched, so whatever is wrong with it is a `Failure` of kind `bad_row` and never an exception of another sort.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson

from ludus.encoding import encode
from ludus.outcome import Failure, Outcome, Stage, Verdict
from ludus.receipt import NAMES, RECORD, Row, hidden_fields
from ludus.response import Response, message
from ludus.task import digest

#: What a failed rollout says of its failure.
_FAILURE = frozenset({"stage", "kind", "cause", "where", "line"})
_NOT_OF_TASK = frozenset({"response", "reward", "receipt", "task_fields"}) | NAMES
_NOT_CONTENT = RECORD | NAMES
_KEPT = ("stop_reason", "rollout_seed", "response", "usage", "timings", "model_calls")


def parse(line: bytes) -> Row:
    """The row of a line."""
    try:
        row = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise bad_row(f"not JSON: {error}") from None
    if not isinstance(row, dict):
        raise bad_row("not a JSON object")
    return row


def bad_row(cause: str, stage: Stage = "open") -> Failure:
    """The failure of a row that cannot be scored as it stands."""
    return Failure("bad_row", cause, stage=stage)


def is_rollout(row: Row) -> bool:
    """Whether a row is the record of a rollout, so that some of its fields are known not to be the task's."""
    return isinstance(row.get("rollout_id"), str) and isinstance(row.get("task_id"), str) and "outcome" in row


def content_of(row: Row) -> Row:
    """The task's fields without those that only name it, as far as a record tells them from the verdict's.

    A record with a receipt keeps what the verdict hid, and tells exactly. In any other record the verdict's values
    may as well be the task's own, and stay.
    """
    if not is_rollout(row):
        task = {key: row[key] for key in row if key not in _NOT_OF_TASK}
    else:
        task = {key: row[key] for key in row if key not in _NOT_CONTENT}
        named = row.get("verdict_fields")
        if "receipt" in row and isinstance(named, list):
            _drop(task, named)
        if row["outcome"] == "failed":
            _drop(task, _FAILURE)
    hidden = row.get("task_fields")
    if hidden and isinstance(hidden, dict):
        task.update(hidden)
    return task


def add_names(row: Row, task: Row) -> None:
    """Make a task whole again by the fields that name it."""
    for name in NAMES:
        if name in row:
            task.setdefault(name, row[name])


def response_of(row: Row) -> Response:
    """The response of a row; a text stands for a response that is one message."""
    given = row.get("response")
    if given is None:
        raise bad_row("the row has no response", "verify")
    if isinstance(given, str):
        return Response.of(message(given))
    try:
        return Response.checked(given)
    except Failure as error:
        raise bad_row(f"response: {error.cause}", "verify") from None


def stored_reward(row: Row) -> float | None:
    """The reward that a row came with, or None."""
    reward = row.get("reward")
    return float(reward) if isinstance(reward, (int, float)) and row.get("outcome") != "failed" else None


def head_of(row: Row, task: Row, number: int) -> Row:
    """The fields that name a rollout. One without a name is named after its task and its line."""
    if not is_rollout(row):
        named = task.get("task_id")
        task_id = str(named) if isinstance(named, (str, int)) else digest(task)
        return {"rollout_id": f"{task_id}-{number}", "task_id": task_id, "repeat": number, "attempt": 1}
    repeat, attempt = row.get("repeat", 0), row.get("attempt", 1)
    return {
        "rollout_id": row["rollout_id"],
        "task_id": row["task_id"],
        "repeat": repeat if isinstance(repeat, int) else 0,
        "attempt": attempt if isinstance(attempt, int) else 1,
    }


def is_same(row: Row, verdict: Verdict, receipt: str, drift: Row | None) -> bool:
    """Whether a row already says all of this, so that its line can stay as it is."""
    get, values = row.get, verdict.values
    return (
        get("receipt") == receipt
        and get("reward") == verdict.reward
        and get("outcome") == ("masked" if verdict.mask else "completed")
        and get("verdict_fields", []) == list(values)
        and values.items() <= row.items()
        and get("mask") == (verdict.mask or None)
        and get("reward_components", {}) == verdict.components
        and get("turn_rewards", []) == verdict.turn_rewards
        and get("replay_drift") == drift
    )


def scored(
    row: Row, head: Row, task: Row, environment: str, verdict: Verdict, receipt: str, drift: Row | None
) -> bytes:
    """The line of a row that was judged, in the format of `rollouts.jsonl`."""
    outcome = Outcome.MASKED if verdict.mask else Outcome.COMPLETED
    parts = {
        "verdict_fields": list(verdict.values),
        "reward_components": verdict.components,
        "turn_rewards": verdict.turn_rewards,
        "mask": verdict.mask,
        "replay_drift": drift,
        "task_fields": hidden_fields(task, verdict.values, head["task_id"]),
    }
    record = {**_opening(head, outcome, environment, task), **verdict.values, **head, "outcome": outcome}
    record |= {"reward": verdict.reward, "receipt": receipt, **{key: part for key, part in parts.items() if part}}
    return encode(record | _kept(row)) + b"\n"


def failed(row: Row, head: Row, task: Row, environment: str, failure: Failure, number: int) -> bytes:
    """The line of a row that could not be judged: without a reward, and with everything that a next try needs."""
    record = {**_opening(head, Outcome.FAILED, environment, task), **head}
    record |= {"stage": failure.stage, "kind": failure.kind, "cause": failure.cause, "where": failure.where}
    if failure.kind == "bad_row":
        record["line"] = number
    if hidden := hidden_fields(task, _FAILURE, head["task_id"]):
        record["task_fields"] = hidden
    return encode(record | _kept(row)) + b"\n"


def unreadable(failure: Failure, number: int) -> bytes:
    """The line that answers one that holds no row."""
    name = f"line-{number}"
    head = {"rollout_id": name, "task_id": name, "repeat": 0, "attempt": 1}
    return failed({}, head, {}, "", failure, number)


def _opening(head: Row, outcome: Outcome, environment: str, task: Row) -> Row:
    """A record's first fields, where a reader looks for them, and those of the task that can be seen in it."""
    reference = {"type": "responses_api_agents", "name": environment}
    shown = {key: task[key] for key in task if key not in RECORD}
    return {**head, "outcome": outcome, "agent_ref": reference, **shown}


def _drop(task: Row, keys: Iterable[Any]) -> None:
    for key in keys:
        if isinstance(key, str):
            task.pop(key, None)


def _kept(row: Row) -> Row:
    kept = {key: row[key] for key in _KEPT if key in row}
    if isinstance(kept.get("response"), str):
        kept["response"] = Response.of(message(kept["response"])).data
    return kept
