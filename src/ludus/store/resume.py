"""Reading a journal's rollouts to resume a collection.

Users can edit a journal, so a line that is not a rollout is an error with its file and line number.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ludus.errors import Failure, UserError
from ludus.record import is_record
from ludus.rollout import Rollout
from ludus.store.journal import Journal

#: Seconds that no step of a rollout takes.
LONGEST = 1e12


def read_rollouts(journal: Journal) -> Iterator[tuple[int, Rollout]]:
    """All rollouts of a journal, each with its byte offset."""
    for number, (offset, row) in enumerate(journal.rows_with_offsets(), start=1):
        try:
            rollout = rollout_of(row)
        except (AttributeError, KeyError, TypeError, ValueError, Failure) as error:
            why = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise UserError(
                f"{journal.path}:{number}: not a rollout: {why}", "Remove the line, then use --resume"
            ) from error
        yield offset, rollout


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
