"""The rollout in a line: one that a collection recorded, or one that NeMo Gym or another program wrote.

Users can edit a file, so a line that is not a rollout is an error with its file and line number.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ludus.dialects.conversion import TOKEN_IDS
from ludus.errors import Failure, UserError
from ludus.outcome import Verdict
from ludus.record import Row, is_record
from ludus.response import by_model
from ludus.rollout import Job, Rollout, rollout_id
from ludus.store.parsing import NOT_JSON, parse
from ludus.store.stored import StoredRow
from ludus.task import Task, digest
from ludus.token_fields import tokens_from_response
from ludus.tokens import TokenLog

#: The fields in which NeMo Gym numbers the tasks of a file, and the rollouts of a task.
_TASK_INDEX, _ROLLOUT_INDEX = "_ng_task_index", "_ng_rollout_index"


#: Seconds that no step of a rollout takes.
LONGEST = 1e12


def read_rollout(line: bytes, path: Path, number: int, hint: str) -> Rollout:
    """The rollout in a line. Raises a UserError that names the file and the line."""
    where = f"{path}:{number}"
    try:
        row = parse(line)
    except Failure as failure:
        cause = failure.cause if failure.cause.startswith(NOT_JSON) else f"not a rollout: {failure.cause}"
        raise UserError(f"{where}: {cause}", hint) from failure
    try:
        rollout = rollout_of(row) if is_record(row) else _foreign_rollout(row, number)
        params: Any = rollout.task.responses_create_params
        if not isinstance(params, dict) or not isinstance(params.get("input"), (str, list)):
            raise TypeError("responses_create_params has no input")
        _take_tokens(rollout)
    except (AttributeError, KeyError, TypeError, ValueError, Failure) as error:
        why = f"{error.args[0]} is missing" if isinstance(error, KeyError) else getattr(error, "cause", str(error))
        raise UserError(f"{where}: not a rollout: {why}", hint) from error
    return rollout


def rollout_of(row: Any) -> Rollout:
    """The rollout in a record. Raises one of several plain errors if a field is missing or has the wrong type."""
    if not isinstance(row, dict) or not is_record(row):
        raise TypeError("rollout_id, task_id or outcome is missing")
    rollout = Rollout.from_row(row)
    job = rollout.job
    expected_types: dict[str, tuple[Any, type]] = {
        "repeat": (job.repeat, int),
        "attempt": (job.attempt, int),
        "usage": (rollout.usage, dict),
        "timings": (rollout.timings, dict),
        "model_calls": (rollout.calls, list),
    }
    for name, (value, kind) in expected_types.items():
        if not isinstance(value, kind):
            raise TypeError(f"{name} is {value!r:.40}, which is not of type {kind.__name__}")
    for call in rollout.calls:
        if not isinstance(call, dict):
            raise TypeError(f"model_calls holds {call!r:.40}, which is not of type dict")
    if not isinstance(job.environment, str):
        raise TypeError(f"agent_ref.name is {job.environment!r:.40}, which is not of type str")
    for stage, seconds in rollout.timings.items():
        if not isinstance(seconds, (int, float)) or not abs(seconds) < LONGEST:  # NaN is not less
            raise TypeError(f"timings.{stage:.40} is {seconds!r:.40}, which is not a number of seconds")
    return rollout


def _foreign_rollout(row: Row, number: int) -> Rollout:
    """A rollout from a row that Ludus did not write: a task's fields, a response and a reward."""
    stored = StoredRow(row, number)
    response = stored.response()
    if "reward" not in row:
        raise ValueError("the row has no reward")
    task, index, repeat = stored.task, row.get(_TASK_INDEX), row.get(_ROLLOUT_INDEX)
    task_id, repeat = _task_id(task, index), repeat if isinstance(repeat, int) else number
    reference = row.get("agent_ref")
    name = str(reference.get("name", "")) if isinstance(reference, dict) else ""
    job = Job(rollout_id(task_id, repeat), task_id, repeat, Task.unchecked(task), task, environment=name)
    rollout = Rollout(job, usage=dict(response.usage), response=response)
    rollout.judge(Verdict(row["reward"]), "the row says mask_sample" if row.get("mask_sample") else None)
    return rollout


def _task_id(task: Row, index: Any) -> str:
    """The name of a task: its own, the number that NeMo Gym gave it, or a digest of its fields."""
    named = task.get("task_id")
    if isinstance(named, (str, int)):
        return str(named)
    if isinstance(index, int):
        return f"task-{index}"
    return digest({key: value for key, value in task.items() if not key.startswith("_ng_")})


def _take_tokens(rollout: Rollout) -> None:
    """Move the tokens of model calls from the items, where NeMo Gym keeps them, into the rollout's calls."""
    output = rollout.response.output if rollout.response is not None else []
    if any("prefix" in call for call in rollout.calls) or not any(key in item for item in output for key in TOKEN_IDS):
        return
    calls: list[dict[str, Any]] = []
    log, written = TokenLog(), 0
    for item in output:
        if not by_model(item):
            calls += [{"items": written}] if written else []
            written = 0
            continue
        written += 1
        if (tokens := tokens_from_response({"output": [item]})) is not None:
            calls.append({"items": written, **log.add(tokens)})
            written = 0
    rollout.calls = calls + ([{"items": written}] if written else [])
