"""The rule for an event, as three numbers: its duration, its earliest start and its latest end.

The day's window and any constraint (`before 2pm`, `after 14:30`, `between 10am and 12:15pm`, `at 11am`) reduce to these
three numbers. Checking, scheduling and generating all use them.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable
from itertools import pairwise
from typing import Any, NamedTuple

from ludus.environments.calendar.times import minutes

Interval = tuple[float, float]


class Rule(NamedTuple):
    """One event's duration, earliest start and latest end, in minutes."""

    duration: float
    earliest: int
    latest: float

    @classmethod
    def of(cls, expected: dict[str, Any]) -> Rule:
        """Read an event of `exp_cal_state`. Raises `ValueError` for a bad duration, time or constraint."""
        duration = expected.get("duration")
        if isinstance(duration, bool) or not isinstance(duration, (int, float)) or not 0 <= duration < math.inf:
            raise ValueError(f"duration={duration!r:.40} must be a number of minutes, 0 or more")
        opens, closes = _time(expected, "min_time"), _time(expected, "max_time")
        start, end = bounds(expected.get("constraint"), duration)
        return cls(duration, opens if start is None else max(opens, start), closes if end is None else min(closes, end))

    def broken_by(self, start: int, duration: float) -> str | None:
        """How an event breaks the rule, in words; None if it keeps the rule."""
        if duration != self.duration:
            return "has the wrong duration"
        if start < self.earliest:
            return "starts too early"
        return "ends too late" if start + duration > self.latest else None


def bounds(constraint: Any, duration: float) -> tuple[int | None, float | None]:
    """The earliest start and the latest end that a constraint allows. Raises `ValueError` if it is unknown."""
    if constraint is None or constraint == "":
        return None, None
    kind, _, rest = str(constraint).strip().lower().partition(" ")
    match kind:
        case "before":
            return None, minutes(rest)
        case "after":
            return minutes(rest), None
        case "at":
            return minutes(rest), minutes(rest) + duration
        case "between":
            first, _, last = rest.partition(" and ")
            return minutes(first), minutes(last)
    raise ValueError(f"constraint={constraint!r:.60} must begin with before, after, between or at")


def overlap(intervals: Iterable[Interval]) -> bool:
    """Whether two intervals share time. One may start where another ends; an empty one must not lie inside another."""
    every = sorted(intervals)
    busy = [interval for interval in every if interval[0] < interval[1]]
    if any(following < end for (_, end), (following, _) in pairwise(busy)):
        return True
    starts = [start for start, _ in busy]
    for start, end in every:
        if end <= start:
            before = bisect_left(starts, end)  # of the intervals that start before `end`, the last one ends last
            if before and busy[before - 1][1] > start:
                return True
    return False


def _time(expected: dict[str, Any], field: str) -> int:
    value = expected.get(field)
    if not isinstance(value, str):
        raise ValueError(f"{field}={value!r:.40} must be a time of the day, such as 14:30")
    return minutes(value)
