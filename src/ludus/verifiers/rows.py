"""Rows that are nearly right."""

from __future__ import annotations

from pydantic import ValidationError

from ludus.outcome import Failure
from ludus.task import Task


def require_exact(task: Task) -> None:
    """Refuse a row whose fields fit only after a conversion, such as "3" for 3: somebody meant something else.

    For environments that take such rows in `compat`, and so cannot leave it to the declaration of their `Task`.
    """
    try:
        type(task).model_validate(task.row, strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(step) for step in first["loc"])
        raise Failure("bad_row", f"{field}: {first['msg']}, not {first['input']!r:.80}") from None
