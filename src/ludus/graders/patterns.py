"""Searches with a dataset's regular expressions, in child processes that can be killed.

Python's `re` backtracks and holds the GIL. A row's pattern can search a model's text for hours, and no thread, deadline
or cancel ends the search: the whole process hangs. So these searches run in child processes with a limit of CPU time.
A text in which the search does not end has no match: a model that writes one must not get out of its verdict.
Do not use this for patterns of your own that take linear time.
"""

from __future__ import annotations

from typing import Self

from ludus.graders.patterns_child import last_match
from ludus.runtime.processes import OutOfTime, ProcessPool

Span = tuple[int, int]


class PatternError(ValueError):
    """The pattern is not a regular expression that `re` accepts."""


class Patterns:
    """Searches in child processes, which start with the first search and end with the context.

    async with Patterns() as patterns:
        spans = await patterns.last_match(r"Choice: ([A-D])", text)
    """

    def __init__(self, children: int = 2, seconds: float = 1.0) -> None:
        self.seconds = seconds
        self._pool = ProcessPool(children)

    async def last_match(self, pattern: str, text: str, flags: int = 0) -> list[Span] | None:
        """The spans of the last match and of its groups ((-1, -1) for an unmatched group), or None.

        None also when the CPU time is spent. Raises `PatternError` for an invalid pattern.
        """
        try:
            spans = await self._pool.run(last_match, pattern, int(flags), text, cpu_seconds=self.seconds)
        except OutOfTime:
            return None
        if isinstance(spans, str):
            raise PatternError(f"{pattern!r:.100}: {spans}")
        return spans

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._pool.close()
