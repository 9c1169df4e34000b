"""Statistics of one column of numbers, and the quantile of Student's t for their confidence intervals."""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any

from ludus.store.statistics import finite_number, pass_at_each_k

Numbers = dict[str, float]

#: The squares of larger numbers overflow a float: they are left out, like infinities and NaN.
_LARGEST = 1e100
#: From so many degrees of freedom on, the series for the quantile is exact to 11 digits.
_MANY_DEGREES = 200


def number(value: Any) -> float | None:
    """The value as a number that can be averaged (booleans are 0 and 1), or None."""
    result = finite_number(value)
    return result if result is not None and abs(result) < _LARGEST else None


def numbers_in(mapping: Any) -> Numbers:
    """The numbers at the top of a mapping. Keys that start with `_` identify a rollout and measure nothing."""
    if not isinstance(mapping, Mapping):
        return {}
    values = {name: number(value) for name, value in mapping.items() if not str(name).startswith("_")}
    return {name: value for name, value in values.items() if value is not None}


def columns_of(rows: Iterable[Numbers]) -> dict[str, list[float]]:
    """The values of each column, in the order of the rows. A row may lack columns."""
    columns: dict[str, list[float]] = {}
    for row in rows:
        for name, value in row.items():
            columns.setdefault(name, []).append(value)
    return columns


def summary(rows: Sequence[Numbers]) -> Numbers:
    """`mean/`, `max/`, `min/`, `median/` and `std/` of each column.

    A standard deviation needs two values. If no column has two, it is 0 for the columns that every row has.
    """
    columns, result = columns_of(rows), Numbers()
    varies = any(len(values) > 1 for values in columns.values())
    for name, values in columns.items():
        result[f"mean/{name}"] = statistics.fmean(values)
        result[f"max/{name}"] = max(values)
        result[f"min/{name}"] = min(values)
        result[f"median/{name}"] = statistics.median(values)
        if len(values) > 1:
            result[f"std/{name}"] = sample_deviation(values)
        elif not varies and len(values) == len(rows):
            result[f"std/{name}"] = 0.0
    return result


def sample_deviation(values: Sequence[float]) -> float:
    """The standard deviation of at least two numbers (n - 1): exactly 0 if they are equal."""
    shifted = [value - values[0] for value in values]
    mean = statistics.fmean(shifted)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in shifted) / (len(values) - 1))


def distribution(values: Sequence[float]) -> Numbers:
    """Mean, median, deviation, standard error, extremes and quartiles; from two values on also the 95 % interval.

    The deviation of a single value is 0.
    """
    ordered = sorted(values)
    mean = statistics.fmean(values)
    deviation = sample_deviation(values) if len(values) > 1 else 0.0
    error = deviation / math.sqrt(len(values))
    result = {
        "mean": mean,
        "median": statistics.median(ordered),
        "std": deviation,
        "sem": error,
        "min": ordered[0],
        "max": ordered[-1],
        "p25": _quantile(ordered, 0.25),
        "p75": _quantile(ordered, 0.75),
    }
    if len(values) > 1:
        half_width = t_quantile(len(values) - 1) * error
        result |= {"ci_low_95": mean - half_width, "ci_high_95": mean + half_width}
    return result


def _quantile(ordered: Sequence[float], share: float) -> float:
    """The quantile by linear interpolation between the two nearest values."""
    position = share * (len(ordered) - 1)
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def pass_curve(values: list[float]) -> list[float]:
    """pass@k for each k: the unbiased estimate if all values are 0 or 1, else the best of the first k."""
    if all(value in (0.0, 1.0) for value in values):
        return list(pass_at_each_k(len(values), int(sum(values))))
    return list(accumulate(values, max))


def mean_curve(values: list[float], max_k: int) -> list[float]:
    """For each k the mean of the first k values, or of all if there are fewer."""
    return [statistics.fmean(values[:k]) for k in range(1, max_k + 1)]


@functools.lru_cache
def t_quantile(degrees: int, confidence: float = 0.95) -> float:
    """The number that Student's t exceeds neither above nor below with probability `confidence`."""
    z = statistics.NormalDist().inv_cdf((1 + confidence) / 2)
    if degrees >= _MANY_DEGREES:  # the expansion of Cornish and Fisher
        return (
            z
            + (z**3 + z) / (4 * degrees)
            + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2)
            + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * degrees**3)
            + (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / (92160 * degrees**4)
        )
    low, high = 0.0, math.pi / 2  # of the angle whose tangent is t / sqrt(degrees)
    while low < (middle := (low + high) / 2) < high:
        low, high = (middle, high) if _t_probability(middle, degrees) < confidence else (low, middle)
    return math.tan(low) * math.sqrt(degrees)


def _t_probability(angle: float, degrees: int) -> float:
    """The probability that |t| is below tan(angle) * sqrt(degrees): a finite series for whole degrees of freedom."""
    sine, cosine, odd = math.sin(angle), math.cos(angle), degrees % 2
    term = cosine if odd else 1.0
    total = 0.0
    for power in range(odd, degrees - 1, 2):
        total += term
        term *= cosine * cosine * (power + 1) / (power + 2)
    return 2 / math.pi * (angle + sine * total) if odd else sine * total
