"""Reading a journal's rollouts to resume a collection.

Users can edit a journal, so a line that is not a rollout is an error with its file and line number.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import orjson

from ludus.errors import Failure, UserError
from ludus.rollout import Rollout
from ludus.runtime.encoding import json_error
from ludus.store.counting import SeenRollouts
from ludus.store.lines import StoredLines
from ludus.store.loading import rollout_of
from ludus.store.stored_run import failed_attempts

_HINT = "Remove the line, then use --resume"


def read_rollouts(lines: StoredLines) -> Iterator[tuple[int, Rollout]]:
    """The rollouts of a journal, each with its byte offset."""
    for number, line in lines.counted():
        yield lines.offset, _read(lines.path, number, line)


def read_attempts(failures: Path, ended: SeenRollouts) -> Iterator[tuple[Rollout, bool]]:
    """The failed attempts of a journal, each with whether its rollout ended with it. `ended` are all other rollouts."""
    for failed in failed_attempts(failures, ended, _HINT):
        yield _read(failures, failed.number, failed.line), failed.is_last


def _read(path: Path, number: int, line: bytes) -> Rollout:
    try:
        return rollout_of(orjson.loads(line))
    except orjson.JSONDecodeError as error:
        raise UserError(f"{path}:{number}: {json_error(error)}", _HINT) from error
    except (AttributeError, KeyError, TypeError, ValueError, Failure) as error:
        why = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        raise UserError(f"{path}:{number}: not a rollout: {why}", _HINT) from error
