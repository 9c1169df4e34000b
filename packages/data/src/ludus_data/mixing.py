"""How many rows of each environment a file with fixed weights has."""

from __future__ import annotations

import math
from collections.abc import Mapping


def mixed_counts(weights: Mapping[str, float], available: Mapping[str, int]) -> dict[str, int]:
    """How many rows each environment gives: as many as the weights allow, none more than it has.

    Each count is less than one row away from its share of the total.
    """
    total = min(math.floor(available[name] / weight * (1 + 1e-12)) for name, weight in weights.items())
    counts = {name: min(math.floor(total * weight), available[name]) for name, weight in weights.items()}
    by_remainder = sorted(weights, key=lambda name: counts[name] - total * weights[name])
    for name in by_remainder:
        if sum(counts.values()) < total and counts[name] < available[name]:
            counts[name] += 1
    return counts
