"""Retries: which failed requests are sent again, how often, and after what pause."""

from __future__ import annotations

import random
from datetime import UTC
from email.utils import parsedate_to_datetime
from time import perf_counter, time

from pydantic import BaseModel, ConfigDict, NonNegativeFloat, NonNegativeInt, PositiveFloat


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


class Attempts:
    """The attempts at one call, until its deadline: a time of `time.perf_counter`.

    pause = attempts.pause("busy", reply.header("retry-after"))
    """

    __slots__ = ("_deadline", "_failed", "_retries")

    def __init__(self, retries: Retries, deadline: float | None = None) -> None:
        self._retries, self._deadline = retries, deadline
        self._failed: dict[str, int] = {}

    def pause(self, budget: str, retry_after: str | None = None) -> float | None:
        """Count an attempt that failed, and return the seconds before the next one; None to give up.

        `retry_after` is the header in which the server asks for a pause. A pause past the deadline is not started, so
        that the call ends with its own failure and not with a timeout.
        """
        retries = self._retries
        failed = self._failed[budget] = self._failed.get(budget, 0) + 1
        if failed > getattr(retries, budget):
            return None
        if budget == "fresh":
            return 0.0
        asked = _seconds(retry_after)
        grown = min(retries.longest_pause, retries.first_pause * 2.0 ** min(failed - 1, 60))
        seconds = min(asked, retries.longest_pause) if asked is not None else grown * random.uniform(0.5, 1.0)
        return seconds if self._deadline is None or perf_counter() + seconds < self._deadline else None


def _seconds(header: str | None) -> float | None:
    """Retry-After in seconds. The header holds a number of seconds or a date."""
    if not header:
        return None
    try:
        return max(0.0, float(header))
    except ValueError:
        pass
    try:
        when = parsedate_to_datetime(header)
    except ValueError:
        return None
    return max(0.0, when.replace(tzinfo=when.tzinfo or UTC).timestamp() - time())
