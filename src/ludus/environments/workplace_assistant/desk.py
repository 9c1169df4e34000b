"""The base of the office's tools: their state, their argument types, and the form of their answers."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator, WithJsonSchema

from ludus import Resources, tool
from ludus.environments.workplace_assistant.rules import Refusal, Rules
from ludus.environments.workplace_assistant.tables import Office, Row, Tables

Answer = Callable[..., Awaitable[Any]]


def _as_text(value: Any) -> Any:
    """A number as text: 30 is read as "30"."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return value
    return str(int(value) if isinstance(value, float) and value.is_integer() else value)


#: A text argument; a number is accepted.
Text = Annotated[str, BeforeValidator(_as_text)]

#: A text argument that may be missing, which differs from an empty text.
Maybe = Annotated[Text | None, WithJsonSchema({"type": "string"})]

#: The id of a row. A number is accepted but matches no row, since ids are texts.
Id = Annotated[str | int | float, WithJsonSchema({"type": "string"})]


class Desk(Resources):
    """One session in the office: its tables and its rules."""

    shared: Tables
    office: Office
    rules: Rules


def reads(function: Answer) -> Answer:
    """Decorate a tool that only reads. Its result is answered as `{"output": ...}`."""
    return tool(_answering(function))


def writes(function: Answer) -> Answer:
    """Decorate a tool that can change the tables."""
    answer = _answering(function)
    answer.writes = True  # type: ignore[attr-defined]
    return tool(answer)


def is_writing(name: str, desk: type[Desk]) -> bool:
    """Whether a tool can change the tables."""
    entry = desk.toolbox.get(name)
    return entry is not None and getattr(entry.function, "writes", False)


def page_of(name: str, rows: Sequence[Row], page: int, page_size: int) -> dict[str, Any]:
    """One page of the results of a search. A page beyond the last is the last."""
    size = max(1, page_size)
    pages = -(-len(rows) // size)
    page = min(max(1, page), pages)
    return {
        name: rows[(page - 1) * size : page * size],
        "pagination": {f"total_{name}": len(rows), "page": page, "page_size": size, "total_pages": pages},
    }


def _answering(function: Answer) -> Answer:
    @functools.wraps(function)
    async def answer(self: Desk, **arguments: Any) -> dict[str, Any]:
        try:
            return {"output": await function(self, **arguments)}
        except Refusal as refusal:
            return {"output": str(refusal)}

    return answer
