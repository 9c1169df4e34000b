"""Rollouts as a table with a row each, for pandas, Polars and Arrow."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ludus.response import is_message, texts_of
from ludus.rollout import Rollout
from ludus.runtime.encoding import encode

#: The types of a column that tables take as they are.
_PLAIN = (bool, int, float, str)


def columns_of(rollouts: Iterable[Rollout]) -> dict[str, list[Any]]:
    """The columns of a table of rollouts, a list each. A rollout without a value has None there.

    `component.NAME` are the parts of the reward, `value.NAME` the named values of the verdict.
    """
    rows = [_row(rollout) for rollout in rollouts]
    names = list(dict.fromkeys(name for row in (_NAMES, *rows) for name in row))
    return {name: _of_one_type([row.get(name) for row in rows]) for name in names}


_NAMES = (
    "rollout_id task_id environment repeat attempt outcome reward mask stop_reason stage kind cause model_calls "
    "tool_calls input_tokens output_tokens seconds receipt prompt answer"
).split()


def _row(rollout: Rollout) -> dict[str, Any]:
    job, verdict, error, response = rollout.job, rollout.verdict, rollout.error, rollout.response
    output = response.output if response is not None else []
    prompts = [texts_of(item) for item in job.task.input if isinstance(item, dict)]
    row = {
        "rollout_id": job.rollout_id,
        "task_id": job.task_id,
        "environment": job.environment,
        "repeat": job.repeat,
        "attempt": job.attempt,
        "outcome": rollout.outcome.value,
        "reward": rollout.reward,
        "mask": verdict.mask if verdict is not None else None,
        "stop_reason": rollout.stop_reason,
        "stage": error.stage if error is not None else None,
        "kind": error.kind if error is not None else None,
        "cause": error.cause if error is not None else None,
        "model_calls": len(rollout.calls),
        "tool_calls": sum(item.get("type") == "function_call" for item in output),
        "input_tokens": rollout.usage.get("input_tokens"),
        "output_tokens": rollout.usage.get("output_tokens"),
        "seconds": rollout.timings.get("total"),
        "receipt": rollout.receipt,
        "prompt": next((text for text in reversed(prompts) if text), None),
        "answer": next((text for item in reversed(output) if is_message(item) and (text := texts_of(item))), None),
    }
    if verdict is not None:
        row |= {f"component.{name}": value for name, value in verdict.components.items()}
        row |= {f"value.{name}": value for name, value in verdict.values.items()}
    return row


def _of_one_type(values: list[Any]) -> list[Any]:
    """Values of one plain type, numbers counting as one; else each as text, and lists and objects as JSON."""
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {int, float} or (len(kinds) == 1 and kinds <= set(_PLAIN)):
        is_whole = kinds == {int} and all(value is None or abs(value) < 2**63 for value in values)
        return values if is_whole or int not in kinds else [None if value is None else float(value) for value in values]
    return [value if value is None or isinstance(value, str) else encode(value).decode() for value in values]
