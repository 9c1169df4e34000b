"""Rules for retries: which errors are retried, how often, and after what pause."""

from __future__ import annotations

import random

from pydantic import BaseModel, ConfigDict, NonNegativeFloat, NonNegativeInt, PositiveFloat

#: HTTP statuses that are retried, and the retry budget of each.
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
    """How often one call is retried for each kind of error, and how the pauses grow.

    `fresh` is for connections that were dropped before the first byte of an answer: servers close idle connections.
    Those retries have no pause.
    """

    model_config = ConfigDict(extra="forbid")

    #: retries after a 429, or another sign that the server is overloaded
    busy: NonNegativeInt = 10
    #: retries after an error of the server (5xx)
    server: NonNegativeInt = 4
    #: retries after a connection that broke in the middle
    dropped: NonNegativeInt = 2
    fresh: NonNegativeInt = 8
    #: seconds before the first retry; each further pause is twice as long
    first_pause: NonNegativeFloat = 0.5
    #: the longest pause in seconds
    longest_pause: PositiveFloat = 60.0

    def pause(self, kind: str, tries: int, retry_after: float | None, left: float) -> float | None:
        """Seconds to wait before the next try of a call that failed `tries` times as `kind`; None to give up.

        `retry_after` is the pause that the server asked for, `left` is the time until the call's deadline. A pause past
        the deadline is not started, so that the call ends with its own failure and not with a timeout.
        """
        if tries > getattr(self, kind):
            return None
        if kind == "fresh":
            return 0.0
        grown = min(self.longest_pause, self.first_pause * 2 ** (tries - 1))
        seconds = min(retry_after, self.longest_pause) if retry_after is not None else grown * random.uniform(0.5, 1.0)
        return seconds if seconds < left else None
