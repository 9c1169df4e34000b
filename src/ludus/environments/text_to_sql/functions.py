"""The functions of MySQL and PostgreSQL that SQLite lacks, and a clock that stands still.

Dates are texts: `2025-03-01` or `2025-03-01 08:30:00`. A function of NULL is NULL unless it says otherwise.
"""

from __future__ import annotations

import math
import re
import sqlite3
from calendar import monthrange
from collections.abc import Callable
from datetime import date, datetime, timedelta
from typing import Any

_MONTHS = {"month": 1, "quarter": 3, "year": 12}
_SECONDS = {"second": 1, "minute": 60, "hour": 3600, "day": 86400, "week": 604800}
_FORMATS = {"%Y": "%Y", "%m": "%m", "%d": "%d", "%H": "%H", "%i": "%M", "%s": "%S", "%S": "%S", "%M": "%B"}
_FORMATS |= {"%b": "%b", "%W": "%A", "%a": "%a", "%y": "%y", "%j": "%j", "%%": "%%", "%T": "%H:%M:%S"}
_LONGEST = 10_000
_NOW = ("now", "subsec", "subsecond")


def read_time(value: Any) -> datetime | None:
    """A date or a time, None if the value is neither."""
    if not isinstance(value, str):
        return None
    try:
        return datetime.fromisoformat(value.strip()).replace(tzinfo=None)
    except ValueError:
        return None


def write_time(value: datetime) -> str:
    """A time as a text; midnight is only its date."""
    return value.strftime("%Y-%m-%d") if value.time() == datetime.min.time() else f"{value:%Y-%m-%d %H:%M:%S}"


def add(value: Any, amount: Any, unit: str, sign: int = 1) -> str | None:
    """A time some units later. A month that is too short ends on its last day."""
    at = read_time(value)
    if at is None or not isinstance(amount, (int, float)):
        return None
    try:
        if unit in _MONTHS:
            month = at.year * 12 + at.month - 1 + sign * int(amount) * _MONTHS[unit]
            year, month = divmod(month, 12)
            return write_time(at.replace(year=year, month=month + 1, day=min(at.day, monthrange(year, month + 1)[1])))
        return write_time(at + timedelta(seconds=sign * amount * _SECONDS[unit]))
    except (ValueError, OverflowError):
        return None


def part(field: str, value: Any) -> float | int | None:
    """One field of a time."""
    at = read_time(value)
    if at is None:
        return None
    fields: dict[str, Callable[[datetime], float | int]] = {
        "year": lambda t: t.year,
        "month": lambda t: t.month,
        "day": lambda t: t.day,
        "hour": lambda t: t.hour,
        "minute": lambda t: t.minute,
        "second": lambda t: t.second,
        "quarter": lambda t: (t.month + 2) // 3,
        "dow": lambda t: t.isoweekday() % 7,
        "isodow": lambda t: t.isoweekday(),
        "doy": lambda t: t.timetuple().tm_yday,
        "week": lambda t: t.isocalendar().week,
        "epoch": lambda t: (t - datetime(1970, 1, 1)).total_seconds(),
    }
    return fields[field.lower()](at)


def truncated(unit: str, value: Any) -> str | None:
    """The beginning of the unit that a time is in."""
    at = read_time(value)
    if at is None:
        return None
    day = datetime(at.year, at.month, at.day)
    starts = {
        "year": datetime(at.year, 1, 1),
        "quarter": datetime(at.year, (at.month - 1) // 3 * 3 + 1, 1),
        "month": datetime(at.year, at.month, 1),
        "week": day - timedelta(days=at.weekday()),
        "day": day,
        "hour": day + timedelta(hours=at.hour),
    }
    return write_time(starts[unit.lower()])


def formatted(value: Any, pattern: str) -> str | None:
    """MySQL's DATE_FORMAT. A field that is not known is an error."""
    at = read_time(value)
    if at is None:
        return None
    return at.strftime(re.sub(r"%.", lambda field: _FORMATS[field[0]], pattern))


def difference(unit: str, start: Any, end: Any) -> int | None:
    """MySQL's TIMESTAMPDIFF: whole units from start to end."""
    first, last = read_time(start), read_time(end)
    if first is None or last is None:
        return None
    if unit in _SECONDS:
        return int((last - first).total_seconds() / _SECONDS[unit])
    sign = 1 if last >= first else -1
    low, high = min(first, last), max(first, last)
    months = (high.year - low.year) * 12 + high.month - low.month
    behind = (high.day, high.time()) < (low.day, low.time())
    return sign * ((months - behind) // _MONTHS[unit])


def days_between(end: Any, start: Any) -> int | None:
    """MySQL's DATEDIFF."""
    last, first = read_time(end), read_time(start)
    return None if first is None or last is None else (last.date() - first.date()).days


def _day(value: Any) -> str | None:
    at = read_time(value)
    return None if at is None else f"{at:%Y-%m-%d}"


def _text(value: Any) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _concat(*parts: Any) -> str | None:
    return None if None in parts else "".join(map(_text, parts))


def _concat_known(*parts: Any) -> str:
    return "".join(_text(part) for part in parts if part is not None)


def _concat_ws(separator: Any, *parts: Any) -> str | None:
    return None if separator is None else _text(separator).join(_text(part) for part in parts if part is not None)


def _left(text: Any, count: Any) -> str | None:
    if text is None or count is None:
        return None
    return _text(text)[: int(count)] if count >= 0 else _text(text)[: max(0, len(_text(text)) + int(count))]


def _right(text: Any, count: Any) -> str | None:
    if text is None or count is None:
        return None
    return _text(text)[max(0, len(_text(text)) - int(count)) :] if count >= 0 else _text(text)[-int(count) :]


def _substring_index(text: Any, separator: Any, count: Any) -> str | None:
    if None in (text, separator, count):
        return None
    if not separator or not count:
        return ""
    mark = str(separator)
    parts = _text(text).split(mark)
    return mark.join(parts[: int(count)] if count > 0 else parts[int(count) :])


def _split_part(text: Any, separator: Any, number: Any) -> str | None:
    if None in (text, separator, number):
        return None
    parts = _text(text).split(separator) if separator else [_text(text)]
    index = int(number) - 1 if number > 0 else len(parts) + int(number)
    return parts[index] if 0 <= index < len(parts) else ""


def _pad(text: Any, length: Any, fill: Any, left: bool) -> str | None:
    if None in (text, length, fill) or length > _LONGEST:
        return None
    body, size = _text(text), max(0, int(length))
    missing = size - len(body)
    if missing <= 0 or not fill:
        return body[:size]
    padding = (str(fill) * missing)[:missing]
    return padding + body if left else body + padding


def _truncate(value: Any, digits: Any) -> float | None:
    if value is None or digits is None:
        return None
    scale: float = 10.0 ** int(digits)
    return float(math.trunc(value * scale) / scale)


def _match(pattern: Any, text: Any) -> bool | None:
    """PostgreSQL's ILIKE, for which the query says MATCH. It takes linear time in the text for each part."""
    if pattern is None or text is None:
        return None
    pattern, text = str(pattern).casefold(), str(text).casefold()
    if "_" in pattern or "\\" in pattern:
        raise ValueError("ILIKE with _ or an escape")
    first, *rest = pattern.split("%")
    if not rest:
        return bool(text == pattern)
    if not text.startswith(first) or not text[len(first) :].endswith(rest[-1]):
        return False
    at, end = len(first), len(text) - len(rest[-1])
    for middle in rest[:-1]:
        place = text.find(middle, at, end)
        if place < 0:
            return False
        at = place + len(middle)
    return True


def _known(choose: Callable[..., Any]) -> Callable[..., Any]:
    def chosen(*values: Any) -> Any:
        known = [value for value in values if value is not None]
        return choose(known) if known else None

    return chosen


def _strict(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of texts and numbers that is NULL if an argument is."""
    return lambda *values: None if None in values else function(*values)


def _fields(**names: str) -> dict[str, Callable[..., Any]]:
    return {name: (lambda value, field=field: part(field, value)) for name, field in names.items()}


FUNCTIONS: dict[str, Callable[..., Any]] = {
    **_fields(year="year", month="month", day="day", dayofmonth="day", hour="hour", minute="minute", second="second"),
    **_fields(quarter="quarter", dayofyear="doy"),
    "date": _day,
    "date_add": lambda value, amount, unit="day": add(value, amount, unit),
    "date_sub": lambda value, amount, unit="day": add(value, amount, unit, -1),
    "date_format": _strict(formatted),
    "date_part": part,
    "date_trunc": truncated,
    "datediff": days_between,
    "timestampdiff": difference,
    "dayname": lambda value: formatted(value, "%W"),
    "monthname": lambda value: formatted(value, "%M"),
    "dayofweek": lambda value: None if (day := part("dow", value)) is None else day + 1,
    "weekday": lambda value: None if (day := part("isodow", value)) is None else day - 1,
    "last_day": lambda v: (t := read_time(v)) and f"{date(t.year, t.month, monthrange(t.year, t.month)[1])}",
    "concat": _concat,
    "concat_known": _concat_known,
    "concat_ws": _concat_ws,
    "left": _left,
    "right": _right,
    "substring_index": _substring_index,
    "split_part": _split_part,
    "lpad": lambda text, length, fill=" ": _pad(text, length, fill, True),
    "rpad": lambda text, length, fill=" ": _pad(text, length, fill, False),
    "reverse": _strict(lambda text: _text(text)[::-1]),
    "initcap": _strict(lambda text: re.sub(r"\w+", lambda match: match[0].capitalize(), text)),
    "truncate": _truncate,
    "greatest": _known(max),
    "least": _known(min),
}


def register(connection: sqlite3.Connection, plain: sqlite3.Connection, now: datetime) -> None:
    """Define the functions on a connection, where it is always `now`. `plain` has SQLite's own functions."""
    for name, function in FUNCTIONS.items():
        connection.create_function(f"ludus_{name}", -1, function, deterministic=True)
    connection.create_function("match", 2, _match, deterministic=True)
    for name, pattern in {"now": "%Y-%m-%d %H:%M:%S", "today": "%Y-%m-%d", "time": "%H:%M:%S"}.items():
        text = now.strftime(pattern)
        connection.create_function(f"ludus_{name}", -1, lambda *_, text=text: text, deterministic=True)
    stamp = now.strftime("%Y-%m-%d %H:%M:%S")
    for name, values in {"date": 0, "time": 0, "datetime": 0, "julianday": 0, "unixepoch": 0, "strftime": 1}.items():
        connection.create_function(name, -1, _at_rest(plain, name, values, stamp), deterministic=True)


def _at_rest(plain: sqlite3.Connection, name: str, at: int, stamp: str) -> Callable[..., Any]:
    """SQLite's own function, for which `now` is the given time."""

    def called(*values: Any) -> Any:
        arguments = list(values)
        if len(arguments) == at:
            arguments.append(stamp)
        elif len(arguments) > at and isinstance(arguments[at], str) and arguments[at].strip().lower() in _NOW:
            arguments[at] = stamp
        marks = ", ".join("?" * len(arguments))
        return plain.execute(f"SELECT {name}({marks})", arguments).fetchone()[0]

    return called
