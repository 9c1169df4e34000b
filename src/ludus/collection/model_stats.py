"""Adding up the statistics of one model in several processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def added_stats(stats: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The sum of `Model.stats` over several processes or shards; empty if there is none."""
    added: dict[str, Any] = _added(stats) if stats else {}
    return added


def _added(values: Sequence[Any]) -> Any:
    """The sum of statistics of the same shape: numbers are added, anything else is taken from the first."""
    first = values[0]
    if isinstance(first, dict):
        dicts = [value for value in values if isinstance(value, dict)]
        keys = dict.fromkeys(key for value in dicts for key in value)
        # A latency is a mean, so it is not added.
        return {
            key: first[key] if key == "latency" and key in first else _added([v[key] for v in dicts if key in v])
            for key in keys
        }
    if isinstance(first, list):
        lists = [value for value in values if isinstance(value, list) and len(value) == len(first)]
        return [_added(entries) for entries in zip(*lists, strict=True)]
    if isinstance(first, (int, float)) and not isinstance(first, bool):
        return sum(value for value in values if isinstance(value, (int, float)))
    return first
