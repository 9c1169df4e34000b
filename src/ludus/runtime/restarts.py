"""When a worker process that died is started again: the rule for collections and for servers."""

from __future__ import annotations

#: So many workers in a row may die before one of them has worked.
MAX_FAILED_STARTS = 5

_FIRST_PAUSE = 0.1


class Restarts:
    """Counts the deaths of worker processes. The pauses before restarts grow until a worker has worked."""

    def __init__(self) -> None:
        self._failed = 0

    def pause(self, *, worked: bool) -> float | None:
        """A worker died: the seconds before another is started, or None to give up. `worked`: it was of use before."""
        self._failed = 0 if worked else self._failed + 1
        if self._failed >= MAX_FAILED_STARTS:
            return None
        return _FIRST_PAUSE * 2 ** (self._failed - 1) if self._failed else 0.0
