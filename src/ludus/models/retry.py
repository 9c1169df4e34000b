"""When to try again, and after how long: pure rules, so that they can be tested without waiting."""

from __future__ import annotations

import random

from pydantic import BaseModel, ConfigDict, NonNegativeFloat, NonNegativeInt, PositiveFloat

#: Statuses that say "later", and the budget each belongs to.
LATER = {
    408: "server",
    425: "server",
    429: "busy",
    500: "server",
    502: "server",
    503: "busy",
    504: "server",
    529: "busy",
}


class Retries(BaseModel):
    """How often one call is tried again, by what went wrong, and how the pauses grow.

    `fresh` counts connections that were dropped before the first byte of an answer, which happens with every server
    that closes idle connections; those are tried again without a pause.
    """

    model_config = ConfigDict(extra="forbid")

    busy: NonNegativeInt = 10
    server: NonNegativeInt = 4
    dropped: NonNegativeInt = 2
    fresh: NonNegativeInt = 8
    first_pause: NonNegativeFloat = 0.5
    longest_pause: PositiveFloat = 60.0

    def pause(self, kind: str, tries: int, told: float | None, left: float) -> float | None:
        """Seconds to wait before the next try of a call that failed `tries` times as `kind`; None to give up.

        `told` is what the server asked for (Retry-After), `left` is the time until the call's deadline. A pause
        that would outlast the deadline is not begun: the failure is told as it is, not as a timeout.
        """
        if tries > getattr(self, kind):
            return None
        if kind == "fresh":
            return 0.0
        grown = min(self.longest_pause, self.first_pause * 2 ** (tries - 1))
        seconds = min(told, self.longest_pause) if told is not None else grown * random.uniform(0.5, 1.0)
        return seconds if seconds < left else None
