"""Estimators that keep only running sums, so that memory does not grow with the run."""

from __future__ import annotations

import copy
import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator
from numbers import Real
from typing import Any

import orjson

from ludus.runtime.encoding import encode

#: Types of verdict values that have no mean.
NOT_NUMERIC = frozenset({str, list, dict, tuple, set, type(None)})

#: So many clusters are added to the sums at once.
_BATCH = 256

_T95 = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
    2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


def t95(degrees: int) -> float:
    """The two-sided 95 % quantile of Student's t; beyond 30 degrees of freedom that of the normal distribution."""
    return _T95[degrees - 1] if degrees <= len(_T95) else 1.96


def pass_at_each_k(n: int, passed: int) -> Iterator[float]:
    """For k = 1 to n: the chance that at least one of k attempts passes, estimated from `passed` of n attempts."""
    return (1.0 - chance for chance in pass_hat_each_k(n, n - passed))


def pass_hat_each_k(n: int, passed: int) -> Iterator[float]:
    """For k = 1 to n: the chance that all of k attempts pass (pass^k), estimated from `passed` of n attempts.

    The estimate for k is C(passed, k) / C(n, k). Each is made from the one before with a single multiplication.
    """
    chance = 1.0
    for drawn in range(n):
        chance *= max(passed - drawn, 0) / (n - drawn)
        yield chance


def finite_number(value: Any) -> float | None:
    """The number that the record holds for a value, so that a resumed run computes the same mean.

    NumPy numbers count too. None if the value is not a finite number.
    """
    try:
        if type(value) not in (float, int) and (isinstance(value, Real) or hasattr(value, "item")):
            value = orjson.loads(encode(value))
        return float(value) if isinstance(value, (int, float)) and math.isfinite(value) else None
    except (OverflowError, ValueError):  # an integer too large for a float
        return None


class ExactSum:
    """A sum of floats without rounding errors, so that it does not depend on their order.

    It is kept as a list of floats of different magnitude, usually one or two, that add up to it exactly.
    """

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: list[float] = []

    def add(self, value: float) -> None:
        """Add a number."""
        parts, size = self._parts, 0
        for part in parts:
            total = value + part
            # The rounding error of an addition is a float itself.
            error = part - (total - value) if abs(value) >= abs(part) else value - (total - part)
            if error:
                if math.isinf(total) or math.isnan(total):  # beyond the largest float: it stays there
                    parts[:] = [total]
                    return
                parts[size] = error
                size += 1
            value = total
        parts[size:] = [value]

    def add_all(self, values: list[float]) -> None:
        """Add many numbers, in a tenth of the time of one by one."""
        left, parts = [*self._parts, *values], list[float]()
        try:
            while total := math.fsum(left):  # what the rounded sum leaves over is the next part
                if not math.isfinite(total):
                    raise OverflowError
                parts.append(total)
                left.append(-total)
        except (OverflowError, ValueError):  # beyond the largest float
            for value in values:
                self.add(value)
            return
        self._parts = parts[::-1]

    @property
    def value(self) -> float:
        """The sum, rounded once."""
        parts = self._parts
        return parts[0] if len(parts) == 1 else math.fsum(parts)


class Mean:
    """The mean of the numbers that were added; their count must not be 0."""

    __slots__ = ("_total", "count")

    def __init__(self) -> None:
        self.count, self._total = 0, ExactSum()

    def add(self, value: float) -> None:
        """Add a number."""
        self.count += 1
        self._total.add(value)

    @property
    def mean(self) -> float:
        """The mean."""
        return self._total.value / self.count


class ClusteredMean:
    """A mean with a confidence interval for clustered values: the repeats of a task are not independent."""

    def __init__(self) -> None:
        self.clusters = 0
        self.count = self._counts_squared = 0.0
        self._totals, self._totals_squared, self._products = ExactSum(), ExactSum(), ExactSum()
        self._pending: list[tuple[float, float]] = []  # clusters that are not in the sums yet

    def add(self, count: float, total: float) -> None:
        """Add one cluster: the number of its values and their sum."""
        self.clusters += 1
        self.count += count
        self._pending.append((count, total))
        if len(self._pending) == _BATCH:
            self._sum_pending()

    def _sum_pending(self) -> None:
        pending, self._pending = self._pending, []
        if pending:
            self._counts_squared += sum([count * count for count, _ in pending])
            self._totals.add_all([total for _, total in pending])
            self._totals_squared.add_all([total * total for _, total in pending])
            self._products.add_all([count * total for count, total in pending])

    @property
    def mean(self) -> float | None:
        """The mean of all values, or None if there are none."""
        self._sum_pending()
        return self._totals.value / self.count if self.count else None

    def interval(self, bounds: tuple[float, float] | None = None) -> tuple[float, float] | None:
        """The 95 % confidence interval of the mean, inside the bounds of the values; None with fewer than two clusters.

        Without bounds it is Student's t interval. That one is too narrow for few clusters of bounded values: three
        clusters that all passed would prove a mean of 1. So two imaginary clusters are added, one at each bound, as in
        the interval of Agresti and Coull, and the result is cut at the bounds. The degrees of freedom count only real
        clusters. The correction is of the order 1 / clusters and vanishes with many.
        """
        if self.clusters < 2:
            return None
        sums = self
        if bounds is not None:
            sums, size = copy.deepcopy(self), self.count / self.clusters
            for bound in bounds:
                sums.add(size, size * bound)
        sums._sum_pending()
        middle, half_width = sums._totals.value / sums.count, t95(self.clusters - 1) * sums._standard_error()
        low, high = middle - half_width, middle + half_width
        return (low, high) if bounds is None else (max(low, bounds[0]), min(high, bounds[1]))

    def _standard_error(self) -> float:
        """The standard error of the mean, robust to values that are alike within a cluster."""
        mean = self._totals.value / self.count
        spread = self._totals_squared.value - 2 * mean * self._products.value + mean * mean * self._counts_squared
        return math.sqrt(max(spread, 0.0) * self.clusters / (self.clusters - 1)) / self.count


class Distribution:
    """Count, mean, maximum and quantiles (within 5 %) of numbers that are not negative, in constant memory."""

    _GROWTH = math.log(1.1)

    def __init__(self) -> None:
        self._count = 0
        self._total = 0.0
        self._largest = 0.0
        self._buckets: Counter[int] = Counter()

    def add(self, values: list[float]) -> None:
        """Add values. Many at once take a fifth of the time of one by one."""
        values = sorted(values)
        self._count += len(values)
        self._total += math.fsum(values)
        self._largest = max(self._largest, values[-1])
        start, growth = bisect_right(values, 1e-9), self._GROWTH
        if start:
            self._buckets[-1000] += start
        while start < len(values):  # the values are sorted: count a whole bucket at once
            bucket = int(math.log(values[start]) // growth)
            end = max(start + 1, bisect_left(values, math.exp((bucket + 1) * growth), start))
            self._buckets[bucket] += end - start
            start = end

    @property
    def total(self) -> float:
        """The sum of the values."""
        return self._total

    def state(self) -> list[Any]:
        """Everything that was added, as JSON for `merge`."""
        return [self._count, self._total, self._largest, list(self._buckets.items())]

    def merge(self, state: list[Any]) -> None:
        """Add everything that was added to another distribution."""
        count, total, largest, buckets = state
        self._count += count
        self._total += total
        self._largest = max(self._largest, largest)
        for bucket, values in buckets:
            self._buckets[bucket] += values

    def quantile(self, share: float) -> float:
        """The value below which `share` of all values lie."""
        left = share * self._count
        for bucket in sorted(self._buckets):
            left -= self._buckets[bucket]
            if left <= 0:
                middle = 0.0 if bucket == -1000 else math.exp((bucket + 0.5) * self._GROWTH)
                return min(middle, self._largest)
        return self._largest

    def summary(self, shares: tuple[float, ...] = (0.5, 0.95)) -> dict[str, float]:
        """The fields for metrics.json, with a quantile for each of the shares."""
        if not self._count:
            return {"count": 0}
        quantiles = {f"p{round(share * 100)}": round(self.quantile(share), 6) for share in shares}
        mean = round(self._total / self._count, 6)
        return {"count": self._count, "mean": mean, **quantiles, "max": round(self._largest, 6)}


class Comoments:
    """Means, variances and the correlation of pairs of numbers, from running sums that do not lose precision."""

    __slots__ = ("_product", "_square_x", "_square_y", "count", "mean_x", "mean_y")

    def __init__(self) -> None:
        self.count = 0
        self.mean_x = self.mean_y = 0.0
        self._square_x = self._square_y = self._product = 0.0  # sums over the deviations from the means

    def add(self, x: float, y: float) -> None:
        """Add one pair."""
        self.count += 1
        from_x, from_y = x - self.mean_x, y - self.mean_y
        self.mean_x += from_x / self.count
        self.mean_y += from_y / self.count
        self._square_x += from_x * (x - self.mean_x)
        self._square_y += from_y * (y - self.mean_y)
        self._product += from_x * (y - self.mean_y)

    def merge(self, other: Comoments) -> None:
        """Add all pairs of another."""
        if other.count:
            apart = other.count * self.count / (self.count + other.count)
            by_x, by_y = other.mean_x - self.mean_x, other.mean_y - self.mean_y
            self.merge_within(other)
            self._square_x += by_x * by_x * apart
            self._square_y += by_y * by_y * apart
            self._product += by_x * by_y * apart

    def merge_within(self, other: Comoments) -> None:
        """Add the deviations of another from its own means, as if both had the same means.

        So differences between groups do not count: merged over tasks, this is the correlation within a task.
        """
        if other.count:
            count = self.count + other.count
            self.mean_x += (other.mean_x - self.mean_x) * other.count / count
            self.mean_y += (other.mean_y - self.mean_y) * other.count / count
            self.count = count
            self._square_x += other._square_x
            self._square_y += other._square_y
            self._product += other._product

    @property
    def variance_y(self) -> float | None:
        """The sample variance of the second numbers; None for fewer than two pairs."""
        return max(self._square_y, 0.0) / (self.count - 1) if self.count > 1 else None

    @property
    def correlation(self) -> float | None:
        """Pearson's correlation; None if either number never varies, or if its sums are too large for a float."""
        spread = math.sqrt(max(self._square_x, 0.0)) * math.sqrt(max(self._square_y, 0.0))
        if not spread or not math.isfinite(spread) or not math.isfinite(self._product):
            return None
        return max(-1.0, min(1.0, self._product / spread))
