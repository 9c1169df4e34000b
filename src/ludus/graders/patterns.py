"""Regular expressions that come with a dataset, run where they can be stopped.

Python's `re` backtracks, and holds the interpreter's lock while it does. A pattern of a row against the text of a model
can take hours, and no thread, deadline or cancellation ends it: the whole process stands still. So these searches run
in child processes with a budget of processor time. The price is a fraction of a millisecond a search, and some 30 ms
once to start a child; patterns that we wrote ourselves, and know to be linear, need none of this.
"""

from __future__ import annotations

from typing import Self

from ludus.errors import Failure
from ludus.graders.patterns_child import last_match
from ludus.runtime.processes import OutOfTime, ProcessPool

Span = tuple[int, int]


class PatternError(ValueError):
    """A pattern that `re` does not accept."""


class Patterns:
    """Searches in child processes, which are started when first needed and ended with the context.

    async with Patterns() as patterns:
        spans = await patterns.last_match(r"Choice: ([A-D])", text)
    """

    def __init__(self, children: int = 2, seconds: float = 1.0) -> None:
        self.seconds = seconds
        self._pool = ProcessPool(children)

    async def last_match(self, pattern: str, text: str, flags: int = 0) -> list[Span] | None:
        """Where the last match and its groups are (-1, -1 for a group that took no part), or None.

        Raises `PatternError` for a pattern that is none, and a `Failure` of kind `timeout` when the budget is spent.
        """
        try:
            found = await self._pool.run(last_match, pattern, int(flags), text, cpu_seconds=self.seconds)
        except OutOfTime:
            cause = f"the pattern {pattern!r:.100} was stopped after {self.seconds:g} s of searching"
            raise Failure("timeout", cause) from None
        if isinstance(found, str):
            raise PatternError(f"{pattern!r:.100}: {found}")
        return found

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._pool.close()
