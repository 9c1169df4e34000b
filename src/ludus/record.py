"""The record of a rollout as one JSON object: the one codec, for collections, `ludus verify`, servers and exporters.

A row of `rollouts.jsonl` holds the task's fields, the verdict's named values and the record's own fields side by side,
because trainers and tools expect that. If a field of the task has the name of a field of the verdict or the record, it
is stored under `task_fields`, so that the task can be read back exactly.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from ludus.errors import Failure
from ludus.outcome import RECORD, UNREWARDED, Verdict

Row = dict[str, Any]

#: Where rows of tasks keep the right answer.
GOLD_FIELDS = ("expected_answer", "answer", "gold_answer", "ground_truth", "target", "solution")

#: Where rows of tasks keep the options to choose from.
OPTION_FIELDS = ("options", "choices")

#: The fields of an entry of `tool_errors`, with their types.
_TOOL_ERROR: dict[str, type | tuple[type, ...]] = {
    "tool": str,
    "exception": str,
    "where": (str, type(None)),
    "count": int,
}

#: Fields of a rollout that branches from another: the parent's id, the number of the parent's model calls that it
#: starts with, and the seed of the parent's session.
ORIGIN = ("parent", "branch_turn", "session_seed")

#: Fields of the failure in a failed rollout's record.
FAILURE = frozenset({"stage", "kind", "cause", "where", "line"})

#: Fields that are not the task's, in a row that Ludus did not write.
_NOT_THE_TASKS = frozenset({"response", "reward", "receipt", "task_fields"})


def record_row(head: Row, environment: str, task: Row, end: Verdict | Failure | None, rest: Row) -> Row:
    """The record of a rollout. `head` holds its ids and outcome, `rest` the fields that do not depend on the verdict.

    The head is merged twice: first, so that its fields come first, and after the task, so that they win.
    """
    if isinstance(end, Verdict):
        end_fields, hidden = verdict_row(end), hidden_fields(task, end.values, head["task_id"])
    elif end is not None:
        end_fields, hidden = failure_row(end), hidden_fields(task, FAILURE, head["task_id"])
    else:
        end_fields, hidden = {}, {}
    shown = {key: task[key] for key in task if key not in hidden} if hidden else task
    reference = {"agent_ref": {"type": "responses_api_agents", "name": environment}} if environment else {}
    row = {**head, **reference, **shown, **end_fields, **head}
    if hidden:
        row["task_fields"] = hidden
    row |= rest
    return row


def verdict_row(verdict: Verdict) -> Row:
    """The fields of a verdict: its named values, its reward, and the optional parts that are set."""
    row = {**verdict.values, "reward": verdict.reward}
    if verdict.values:
        row["verdict_fields"] = list(verdict.values)
    parts: Row = {"reward_components": verdict.components, "turn_rewards": verdict.turn_rewards}
    parts |= {"thread_rewards": verdict.thread_rewards, "mask": verdict.mask}
    return row | {name: part for name, part in parts.items() if part}


def read_verdict(row: Row, names: Iterable[str]) -> Verdict:
    """The verdict in a row. `names` are the names of its values, which may be those of an argument of `Verdict`."""
    verdict = Verdict(
        row["reward"],
        components=row.get("reward_components"),
        turn_rewards=row.get("turn_rewards"),
        thread_rewards=row.get("thread_rewards"),
        mask=row.get("mask"),
    )
    verdict.values = {key: row[key] for key in names if key in row}
    return verdict


def is_input(item: Row) -> bool:
    """Whether an item of a response is input to the model: a tool output, a user or system message."""
    kind, role = item.get("type", "message"), item.get("role", "assistant")
    return bool(kind == "function_call_output" or (kind == "message" and role != "assistant"))


def read_tool_errors(row: Row) -> list[Row]:
    """The exceptions of tools in a record. Rows of other programs may hold anything under that name."""
    errors = row.get("tool_errors")
    if not errors or not isinstance(errors, list):
        return []
    return [
        error for error in errors if isinstance(error, dict) and _TOOL_ERROR.keys() == error.keys() and _fits(error)
    ]


def read_timings(row: Row) -> tuple[Any, list[tuple[str, float, float]]]:
    """The seconds of each stage in a record, and its steps. Malformed steps are left out."""
    timings = row.get("timings") or {}
    if not isinstance(timings, dict) or "steps" not in timings:
        return timings, []
    listed = timings["steps"] if isinstance(timings["steps"], list) else []
    steps = [(step[0], step[1], step[2]) for step in listed if _is_step(step)]
    return {stage: seconds for stage, seconds in timings.items() if stage != "steps"}, steps


def failure_row(failure: Failure) -> Row:
    """The fields of a failure."""
    return {"stage": failure.stage, "kind": failure.kind, "cause": failure.cause, "where": failure.where}


def is_record(row: Row) -> bool:
    """Whether Ludus wrote a row as the record of a rollout."""
    return isinstance(row.get("rollout_id"), str) and isinstance(row.get("task_id"), str) and "outcome" in row


def origin_of(row: Row) -> Row | None:
    """The `ORIGIN` fields of a record, or None if its rollout does not branch from another."""
    return {key: row[key] for key in ORIGIN} if all(map(row.__contains__, ORIGIN)) and is_record(row) else None


def hidden_fields(task: Row, used: Collection[str], task_id: str) -> Row:
    """The fields of a task whose names its record uses. `used` are the fields of the verdict or of the failure."""
    disjoint = RECORD.isdisjoint(task) and (not used or task.keys().isdisjoint(used))  # the usual case
    hidden = {} if disjoint else {key: task[key] for key in task if key in used or key in RECORD}
    if task.get("task_id", task_id) != task_id:
        hidden["task_id"] = task["task_id"]
    return hidden


def asked(row: Row) -> str:
    """The text of the last user message of a row's prompt; without any, that of the first message."""
    params = row.get("responses_create_params")
    prompt = params.get("input") if isinstance(params, dict) else None
    if isinstance(prompt, str):
        return prompt
    messages = [item for item in prompt if isinstance(item, dict)] if isinstance(prompt, list) else []
    users = [item for item in messages if item.get("role") == "user"]
    for item in users[-1:] or messages[:1]:
        content = item.get("content")
        if isinstance(content, str):
            return content
        parts = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
        return " ".join(part["text"] for part in parts if isinstance(part.get("text"), str))
    return ""


def verifier_of(receipt: Any) -> str:
    """The digest of the verifier in a receipt; empty if there is no receipt."""
    return receipt.partition(".")[0] if isinstance(receipt, str) else ""


def task_row(row: Row, ours: bool | None = None) -> Row:
    """The row of the task, read back from a record or from any row that has a task's fields and a response.

    A record with a receipt stores the task's fields that the verdict replaced, so its task is exact. In any other
    record a value of the verdict may also be a field of the task, and stays. `ours` is `is_record(row)`, if known.
    """
    if ours is None:
        ours = is_record(row)
    others = RECORD if ours else _NOT_THE_TASKS
    task = {key: value for key, value in row.items() if key not in others}
    if ours:
        named = row.get("verdict_fields")
        if named and "receipt" in row and isinstance(named, list):
            _drop(task, named)
        if row["outcome"] in UNREWARDED:
            _drop(task, FAILURE)
    hidden = row.get("task_fields")
    if hidden and isinstance(hidden, dict):
        task.update(hidden)
    return task


def _fits(tool_error: Row) -> bool:
    return all(isinstance(tool_error[key], kinds) for key, kinds in _TOOL_ERROR.items())


def _is_step(step: Any) -> bool:
    if not isinstance(step, list) or len(step) != 3 or not isinstance(step[0], str):
        return False
    return all(type(number) in (int, float) and 0 <= number < float("inf") for number in step[1:])


def _drop(task: Row, keys: Iterable[Any]) -> None:
    for key in keys:
        if isinstance(key, str):
            task.pop(key, None)
