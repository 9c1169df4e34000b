"""The lines of all rollouts that match a query, as they stand in the journals."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from ludus.runtime.regular_files import open_regular
from ludus.view.index import RunIndex
from ludus.view.query import FROM, parse_query

_AT_ONCE = 200


def matching_lines(index: RunIndex, query: str) -> AsyncIterator[bytes]:
    """The lines, in small batches: memory does not grow with the number of matches.

    An invalid query is refused here, before the answer has begun.
    """
    parse_query(query)
    return _lines(index, query)


async def _lines(index: RunIndex, query: str) -> AsyncIterator[bytes]:
    after = 0
    while True:
        lines, after = await asyncio.to_thread(_next_lines, index, query, after)
        if not lines:
            return
        yield b"".join(lines)


def _next_lines(index: RunIndex, query: str, after: int) -> tuple[list[bytes], int]:
    matched = parse_query(query)
    with index.reading() as database:
        rows = database.execute(
            f"SELECT r.id, r.file, r.offset, r.length FROM {FROM} WHERE {matched.where} AND r.id > ? "
            "ORDER BY r.id LIMIT ?",
            (*matched.parameters, after, _AT_ONCE),
        ).fetchall()
    lines = []
    for row in rows:
        with open_regular(index.journals[row["file"]]) as file:
            file.seek(row["offset"])
            lines.append(file.read(row["length"]))
        after = row["id"]
    return lines, after
