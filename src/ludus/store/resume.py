"""What the journals of a collection hold: rollouts, read back one by one by a run that goes on with it.

A journal lies where anybody can edit it, so a line that is no rollout is the user's to repair, and is named.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ludus.errors import Failure, UserError
from ludus.record import is_record
from ludus.rollout import Rollout
from ludus.store.journal import Journal


def recorded(journal: Journal) -> Iterator[tuple[int, Rollout]]:
    """Every rollout of a journal, and where it is."""
    for number, (place, row) in enumerate(journal.places(), start=1):
        try:
            rollout = _rollout(row)
        except (AttributeError, KeyError, TypeError, ValueError, Failure) as error:
            why = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            raise UserError(
                f"{journal.path}:{number}: not a rollout: {why}", "Remove the line, then use --resume"
            ) from error
        yield place, rollout


def _rollout(row: Any) -> Rollout:
    if not isinstance(row, dict) or not is_record(row):
        raise TypeError("it has no rollout_id, task_id and outcome")
    rollout = Rollout.from_row(row)
    job = rollout.job
    parts: dict[str, tuple[Any, type]] = {
        "repeat": (job.repeat, int),
        "attempt": (job.attempt, int),
        "usage": (rollout.usage, dict),
        "timings": (rollout.timings, dict),
        "model_calls": (rollout.calls, list),
    }
    for name, (value, kind) in parts.items():
        if not isinstance(value, kind):
            raise TypeError(f"{name} is {value!r:.40}")
    return rollout
