"""Times of the day as minutes since midnight, read from text and written as text."""

from __future__ import annotations

import re

DAY = 24 * 60

_TIME = re.compile(r"([0-9]{1,2})(?::([0-5][0-9]))?(?:\s?([ap])m)?", re.IGNORECASE)


def minutes(text: str) -> int:
    """Minutes since midnight. Raises `ValueError` if the text is not a time of the day.

    minutes("14:30"), minutes("2:30pm"), minutes("2:30 PM")   # 870 each
    """
    match = _TIME.fullmatch(text.strip())
    if match is None or not (match[2] or match[3]):
        raise ValueError(f"not a time of the day: {text!r:.40}")
    hour, minute = int(match[1]), int(match[2] or 0)
    if match[3]:
        if not 1 <= hour <= 12:
            raise ValueError(f"not a time of a 12-hour clock: {text!r:.40}")
        hour = hour % 12 + (12 if match[3] in "pP" else 0)
    if hour * 60 + minute > DAY:
        raise ValueError(f"later than 24:00: {text!r:.40}")
    return hour * 60 + minute


def clock(time: int) -> str:
    """`870` as `14:30`."""
    return f"{time // 60:02}:{time % 60:02}"


def spoken(time: int, blank: str = "") -> str:
    """`870` as `2:30pm`, `840` as `2pm`; `blank` goes before am or pm."""
    hour, minute = divmod(time, 60)
    past = f":{minute:02}" if minute else ""
    return f"{(hour - 1) % 12 + 1}{past}{blank}{'am' if hour % 24 < 12 else 'pm'}"
