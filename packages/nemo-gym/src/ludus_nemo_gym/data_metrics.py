"""Metrics of a dataset, under the names that NeMo Gym's metrics files use."""

from __future__ import annotations

import json
from typing import Any

from ludus_data.field_stats import NumberSummary

from ludus_nemo_gym.trees import Tree

Row = dict[str, Any]

TOOLS, TURNS, TEMPERATURE = "Number of tools", "Number of turns", "Temperature"
WORDS = "Json-dumped number of words (proxy for token count)"


def _numbers(numbers: NumberSummary) -> Tree:
    """The summary of numbers as metrics files hold it."""
    return {
        "Total # non-null values": numbers.count,
        "Average": _rounded(numbers.mean),
        "Min": _rounded(numbers.least if numbers.count else 0.0),
        "Max": _rounded(numbers.most if numbers.count else 0.0),
        "Standard deviation": _rounded(numbers.deviation),
    }


class TextSummary:
    """Counts texts, and distinct texts."""

    def __init__(self) -> None:
        self.count = 0
        self._seen: set[int] = set()

    def add(self, value: str) -> None:
        """Add a text."""
        self.count += 1
        self._seen.add(hash(value))

    def summary(self) -> Tree:
        """The summary as metrics files hold it."""
        return {"unique_count": len(self._seen), "total_count": self.count}


class DataMetrics:
    """Metrics of rows, added one at a time."""

    def __init__(self) -> None:
        self.rows = 0
        self._numbers = {name: NumberSummary() for name in (TOOLS, WORDS, TURNS, TEMPERATURE)}
        self._others: dict[str, NumberSummary | TextSummary] = {}

    def add(self, row: Row) -> None:
        """Add a row."""
        self.rows += 1
        params = row["responses_create_params"]
        messages, tools = params.get("input"), params.get("tools")
        if tools is not None:
            self._numbers[TOOLS].add(len(tools))
        turns = 1 if isinstance(messages, str) else sum(item.get("role") == "user" for item in messages)
        self._numbers[TURNS].add(turns)
        self._numbers[WORDS].add(len(json.dumps(params).split()))
        temperature = params.get("temperature")
        if isinstance(temperature, (int, float)):
            self._numbers[TEMPERATURE].add(temperature)
        for name, value in row.items():
            self._add_other(name, value)

    def _add_other(self, name: str, value: Any) -> None:
        kind = (
            NumberSummary if isinstance(value, (bool, int, float)) else TextSummary if isinstance(value, str) else None
        )
        if kind is None:
            return
        summary = self._others.setdefault(name, kind())
        if isinstance(summary, NumberSummary) and isinstance(value, (bool, int, float)):
            summary.add(float(value))
        elif isinstance(summary, TextSummary):
            summary.add(str(value))

    def summary(self) -> Tree:
        """Everything as one JSON object."""
        numbers = {name: _numbers(summary) for name, summary in self._numbers.items()}
        others = {
            name: _numbers(other) if isinstance(other, NumberSummary) else other.summary()
            for name, other in self._others.items()
        }
        return {"Number of examples": self.rows, **numbers, **others}


def _rounded(value: float) -> float:
    return round(value, 2 if abs(value) >= 1 else 3)
