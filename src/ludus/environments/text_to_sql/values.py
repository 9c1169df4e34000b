"""The values that a column may have in a generated state: few, so that they repeat, and around the query's literals."""

from __future__ import annotations

import random
import re
from datetime import datetime, timedelta
from typing import Any

from ludus.environments.text_to_sql.functions import read_time, write_time
from ludus.environments.text_to_sql.schema import DATE, DATETIME, INTEGER, REAL, STRING, TIME, Column

BASE = datetime(2025, 3, 14)
_WORDS = ("alpha", "beta", "gamma", "delta", "epsilon", "omega")
_SIGNS = {"abs", "sign"}
_TRIMS = {"trim", "ltrim", "rtrim", "btrim"}
_LENGTHS = {"substr", "substring", "left", "right", "length", "char_length", "character_length"}
_YEAR = re.compile(r"(?:19|20)\d\d")


def near(value: Any, literal: Any) -> bool:
    """Whether a value is derived from a literal."""
    if isinstance(value, (int, float)) and isinstance(literal, (int, float)):
        return abs(value - literal) <= 1
    return str(literal).replace("%", "").replace("_", "x")[:10] in str(value)


def is_date(column: Column, values: list[Any]) -> bool:
    if column.kind in (DATE, DATETIME, TIME):
        return True
    texts = [value for value in values if isinstance(value, str)]
    if column.kind != STRING:
        return False
    if texts:
        return sum(read_time(text) is not None and len(text) >= 10 for text in texts) * 2 > len(texts)
    return column.name.lower().endswith(("date", "_at", "_on", "timestamp"))


def dates(rng: random.Random, column: Column, values: list[Any]) -> list[Any]:
    """Days at, before and after the given ones, and some months around. Times of day are never midnight."""
    times = [time for value in values if (time := read_time(value)) is not None and 1900 < time.year < 2100]
    years = [int(value) for value in values if isinstance(value, int) and 1900 < value < 2100]
    times += [datetime(year, month, 1) for year in years for month in (1, 12)]
    times += [datetime(int(value), 6, 1) for value in values if isinstance(value, str) and _YEAR.fullmatch(value)]
    times = rng.sample(times, min(len(times), 12)) or [BASE]
    days = [time + timedelta(days=days) for time in times for days in (0, rng.choice((-1, 1)), rng.randint(-400, 400))]
    if column.kind == TIME:
        return [f"{rng.randint(0, 23):02}:{rng.choice((0, 15, 30)):02}:00" for _ in range(6)]
    with_time = column.kind == DATETIME or (column.kind == STRING and any(len(str(value)) > 10 for value in values))
    if not with_time:
        return [day.strftime("%Y-%m-%d") for day in days]
    return [
        write_time(day.replace(hour=rng.randint(1, 23), minute=rng.choice((0, 30)), second=rng.randint(1, 59)))
        for day in days
    ]


def border(rng: random.Random, seed: int, column: Column, loose: list[Any]) -> list[Any]:
    """In every other state some columns hold one value, so that a few rows add up to a literal: `SUM(x) > 500`."""
    literals = [value for value in loose if isinstance(value, (int, float)) and value > 4]
    if seed % 2 or not literals or column.key or column.name.lower().endswith("id") or rng.random() < 0.3:
        return []
    counts = [value + 1 for value in loose if isinstance(value, int) and 0 < value < 10]  # `HAVING COUNT(*) > 3`
    value = rng.choice(literals) / rng.choice([rng.randint(1, 6), *counts])
    if column.kind == INTEGER and value != int(value):
        return []
    return [value if column.kind == REAL else int(value)]


def numbers(rng: random.Random, column: Column, own: list[Any], named: list[Any], loose: list[Any]) -> list[Any]:
    numeric = [value for value in named if isinstance(value, (int, float))]
    name = column.name.lower()
    if name.endswith("id") or column.key:
        return [value for value in numeric if isinstance(value, int)] + list(range(1, 8))
    if "year" in name:
        years = [value for value in own + numeric if isinstance(value, int)] or [2020, 2022]
        return [value + shift for value in years[:8] for shift in (0, rng.choice((-1, 1)))]
    other = [value for value in loose if isinstance(value, (int, float))]
    base = [*numeric, *numeric, *rng.sample(own, min(3, len(own))), *other]
    base = [value for value in base if isinstance(value, (int, float))]
    step = 0.5 if column.kind == REAL else 1
    around = [value + shift for value in base for shift in (0, rng.choice((-step, step)))]
    wide = [rng.randint(0, 12), rng.randint(1, 100), rng.randint(1, 1000)]
    values = around + wide
    if column.kind == REAL:
        return [round(float(value), 2) for value in values] + [round(rng.uniform(0, 500), 2) for _ in range(3)]
    return [int(value) for value in values]


def texts(rng: random.Random, seed: int, own: list[Any], named: list[Any]) -> list[Any]:
    texts = [str(value) for value in named]
    pool: list[Any] = []
    for text in texts:
        plain = text.replace("%", "").replace("_", "x")
        pool.append(plain)
        if "%" in text or "_" in text:
            pool.append(text.replace("%", "zz").replace("_", "x"))
            pool.append(f"q{plain}q")
        if seed % 3 == 2 and plain.swapcase() != plain:
            pool.append(plain.swapcase())
    pool += rng.sample(own, min(4, len(own)))
    pool += rng.sample(_WORDS, 2 if pool else 4)
    if seed % 3 == 1:
        pool.append("")
    return pool


def seen_by(calls: set[str], column: Column, numbers: list[int], values: list[Any]) -> list[Any]:
    """Values that reveal whether the query calls a function: `ABS` needs a negative number."""
    if column.kind in (INTEGER, REAL):
        telling: list[Any] = [-1, -3, -7] if calls & _SIGNS else []
        telling += [number * 2 + more for number in numbers[:4] if "mod" in calls for more in (0, 1, number)]
        return [float(value) for value in telling] if column.kind == REAL else telling
    texts = [value for value in values if isinstance(value, str)][:3]
    telling = [f" {text}" for text in texts] + [f"{text}  " for text in texts] if calls & _TRIMS else []
    if calls & _LENGTHS:
        lengths = [length for length in numbers if 0 < length <= 120][:4]
        telling += [_long(length + more) for length in lengths for more in (0, 1, 9)]
    return telling


def _long(length: int) -> str:
    return "".join(_WORDS[at % len(_WORDS)] for at in range(length // 4 + 1))[:length]


def absent(rng: random.Random, column: Column, named: list[Any], pool: list[Any], below: bool) -> list[Any]:
    """Values that a filter with these literals rejects: those on one side of all of them."""
    numeric = [value for value in named if isinstance(value, (int, float))]
    if column.kind in (INTEGER, REAL) and numeric and not column.choices:
        edge = int(min(numeric)) - 9 if below else int(max(numeric)) + 2
        return [edge + more for more in (0, 3, 7)]
    times = [time for value in named if (time := read_time(value)) is not None and 1910 < time.year < 2090]
    if times and is_date(column, named):
        moved = [time + timedelta(days=-3000 if below else 3000) for time in times]
        return dates(rng, column, [write_time(time)[: 19 if column.kind == DATETIME else 10] for time in moved])
    if column.kind == STRING and not column.choices:
        pool = [*pool, *_WORDS]
        return [value for value in pool if not any(near(value, literal) for literal in named)] or pool
    return [value for value in pool if value not in named] or pool


def near_now(rng: random.Random, column: Column, now: datetime, numbers: list[int]) -> list[str]:
    """Days at the border of `the last 30 days`."""
    if column.kind == TIME:
        return []
    days = [now - timedelta(days=number + more) for number in numbers[:4] for more in (-1, 0, 1)]
    days += [now - timedelta(days=rng.randint(0, 400)) for _ in range(2)]
    return [write_time(day) if column.kind == DATETIME else day.strftime("%Y-%m-%d") for day in days]
