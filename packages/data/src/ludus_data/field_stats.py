"""Statistics of the fields of rows, added one row at a time. The memory is bounded, whatever the rows hold."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from ludus.record import Row
from ludus.store.statistics import Distribution

#: More fields are not described; more distinct values are not counted.
_MOST_FIELDS, _MOST_DISTINCT = 500, 10_000
_BATCH = 1024

_PARAMS = "responses_create_params"
_TYPES = {str: "text", bool: "true or false", int: "number", float: "number", list: "list", dict: "object"}


class NumberSummary:
    """Count, mean, range and standard deviation of numbers, added one at a time."""

    def __init__(self) -> None:
        self.count = 0
        self.least, self.most = math.inf, -math.inf
        self.mean = self._squares = 0.0

    def add(self, value: float) -> None:
        """Add a number by Welford's method, which does not lose precision on large numbers."""
        self.count += 1
        self.least, self.most = min(self.least, value), max(self.most, value)
        delta = value - self.mean
        self.mean += delta / self.count
        self._squares += delta * (value - self.mean)

    @property
    def deviation(self) -> float:
        """The standard deviation of a sample."""
        return math.sqrt(self._squares / (self.count - 1)) if self.count > 1 else 0.0

    def as_json(self) -> dict[str, float]:
        """All of it, rounded to six digits."""
        values = {"mean": self.mean, "min": self.least, "max": self.most, "deviation": self.deviation}
        return {"count": self.count, **{name: float(f"{value:.6g}") for name, value in values.items() if self.count}}


class LengthSummary:
    """Mean, median, 95 % quantile and maximum of lengths."""

    def __init__(self) -> None:
        self._distribution = Distribution()
        self._waiting: list[float] = []

    def add(self, length: float) -> None:
        """Add a length."""
        self._waiting.append(length)
        if len(self._waiting) == _BATCH:  # adding many at once is faster
            self._flush()

    def as_json(self) -> dict[str, float]:
        """Count, mean, p50, p95 and max, each as a whole number except the mean."""
        self._flush()
        summary = self._distribution.summary()
        return {name: round(value, 1) if name == "mean" else round(value) for name, value in summary.items()}

    def _flush(self) -> None:
        if self._waiting:
            self._distribution.add(self._waiting)
            self._waiting = []


class FieldStats:
    """One field: in how many rows it is, how often it is empty, its types, its numbers and the lengths of its texts."""

    def __init__(self) -> None:
        self.rows = self.empty = 0
        self.types: Counter[str] = Counter()
        self._numbers, self._lengths = NumberSummary(), LengthSummary()
        self._seen: set[int] = set()

    def add(self, value: Any) -> None:
        """Add the value of one row."""
        self.rows += 1
        if value is None or value in ("", [], {}):
            self.empty += 1
        if value is None:
            return
        self.types[_TYPES.get(type(value), "other")] += 1
        if isinstance(value, (list, dict)):
            self._lengths.add(len(value))
            return
        if len(self._seen) < _MOST_DISTINCT:
            self._seen.add(hash(value))
        if isinstance(value, str):
            self._lengths.add(len(value))
        elif not isinstance(value, bool):
            self._numbers.add(float(value))

    def as_json(self) -> dict[str, Any]:
        """All statistics of the field. `distinct` is a lower bound if `distinct_is_exact` is false."""
        summary: dict[str, Any] = {"rows": self.rows, "empty": self.empty, "types": dict(self.types)}
        if self._seen:
            summary |= {"distinct": len(self._seen), "distinct_is_exact": len(self._seen) < _MOST_DISTINCT}
        if self._numbers.count:
            summary["number"] = self._numbers.as_json()
        lengths = self._lengths.as_json()
        if lengths["count"]:
            summary["length"] = lengths
        return summary


class RowFields:
    """The statistics of every field of rows. The fields of the request are named `responses_create_params.KEY`."""

    def __init__(self) -> None:
        self.fields: dict[str, FieldStats] = {}
        self.left_out = 0  # values of fields beyond `_MOST_FIELDS`

    def add(self, row: Row) -> None:
        """Add one row."""
        for name, value in row.items():
            if name == _PARAMS and isinstance(value, dict):
                for key, param in value.items():
                    self._add(f"{_PARAMS}.{key}", param)
            else:
                self._add(name, value)

    def as_json(self) -> dict[str, Any]:
        """The statistics by the names of the fields."""
        return {name: stats.as_json() for name, stats in self.fields.items()}

    def _add(self, name: str, value: Any) -> None:
        stats = self.fields.get(name)
        if stats is None:
            if len(self.fields) == _MOST_FIELDS:
                self.left_out += 1
                return
            stats = self.fields[name] = FieldStats()
        stats.add(value)
