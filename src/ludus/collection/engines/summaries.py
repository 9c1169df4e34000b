"""The summary of a rollout that a worker sends beside its line: the metrics need no more, so nobody parses the line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ludus.collection.broken_sequences import broken_calls
from ludus.collection.plan import TaskWork
from ludus.errors import Failure
from ludus.outcome import Outcome, Verdict
from ludus.rollout import Job, Rollout
from ludus.store.statistics import NOT_NUMERIC, finite_number
from ludus.task import Task

_NO_TASK = Task.unchecked({})
_OUTCOMES = {outcome.value: outcome for outcome in Outcome}
_CALL: dict[str, Any] = {}


def summary(rollout: Rollout) -> list[Any]:
    """The summary as a JSON list, with only the numbers among the verdict's values."""
    calls, error, verdict = rollout.calls, rollout.error, rollout.verdict
    return [
        rollout.outcome,
        len(calls),
        calls[-1].get("prompt_too_long") if calls else None,
        broken_calls(calls),
        rollout.timings,
        rollout.usage,
        rollout.tool_errors,
        rollout.stop_reason,
        [error.kind, error.cause, error.stage, error.where] if error is not None else None,
        [verdict.reward, verdict.components, verdict.turn_rewards, _numbers(verdict.values)] if verdict else None,
    ]


def summary_job(work: TaskWork) -> Job:
    """A job for the summaries of a task's rollouts: it only names the task."""
    return Job("", work.task_id, 0, _NO_TASK, {}, environment=work.environment.name)


def read_summary(job: Job, fields: list[Any]) -> Rollout:
    """A rollout with the fields of `summary`, without a row and a response."""
    outcome, turns, too_long, broken, timings, usage, tool_errors, stop_reason, error, verdict = fields
    calls = [_CALL] * turns
    for turn, (why, repeated) in enumerate(broken):
        calls[turn] = {"broke": why, "prefix": repeated, "prompt_ids": ()}
    if too_long is not None:
        calls[-1] = {**calls[-1], "prompt_too_long": too_long}
    rollout = Rollout(job, usage, timings, calls, tool_errors, _OUTCOMES[outcome], stop_reason=stop_reason)
    if error is not None:
        rollout.error = Failure(error[0], error[1], stage=error[2], where=error[3])
    if verdict is not None:
        reward, components, turn_rewards, values = verdict
        rollout.verdict = Verdict(reward, components=components, turn_rewards=turn_rewards, **values)
    return rollout


def _numbers(values: Mapping[str, Any]) -> dict[str, float | bool]:
    numbers = {}
    for name, value in values.items():
        if type(value) not in NOT_NUMERIC:
            number = value if type(value) is bool else finite_number(value)
            if number is not None:
                numbers[name] = number
    return numbers
