"""What a dataset looks like in numbers, under the names that NeMo Gym's metrics files use."""

from __future__ import annotations

import json
import math
from typing import Any

from ludus_nemo_gym.trees import Tree

Row = dict[str, Any]

TOOLS, TURNS, TEMPERATURE = "Number of tools", "Number of turns", "Temperature"
WORDS = "Json-dumped number of words (proxy for token count)"


class Spread:
    """Numbers, seen one at a time."""

    def __init__(self) -> None:
        self.count = 0
        self.least, self.most = math.inf, -math.inf
        self._mean = self._squares = 0.0

    def add(self, value: float) -> None:
        """One more. The mean and the squares are kept as Welford does, so that large numbers lose nothing."""
        self.count += 1
        self.least, self.most = min(self.least, value), max(self.most, value)
        off = value - self._mean
        self._mean += off / self.count
        self._squares += off * (value - self._mean)

    def summary(self) -> Tree:
        """As it is written."""
        known = self.count > 0
        deviation = math.sqrt(self._squares / (self.count - 1)) if self.count > 1 else 0.0
        return {
            "Total # non-null values": self.count,
            "Average": _rounded(self._mean),
            "Min": _rounded(self.least if known else 0.0),
            "Max": _rounded(self.most if known else 0.0),
            "Standard deviation": _rounded(deviation),
        }


class Texts:
    """Texts: how many there are, and how many different ones."""

    def __init__(self) -> None:
        self.count = 0
        self._seen: set[int] = set()

    def add(self, value: str) -> None:
        """One more."""
        self.count += 1
        self._seen.add(hash(value))

    def summary(self) -> Tree:
        """As it is written."""
        return {"unique_count": len(self._seen), "total_count": self.count}


class DataMetrics:
    """Metrics of rows, fed one at a time."""

    def __init__(self) -> None:
        self.rows = 0
        self._spreads = {name: Spread() for name in (TOOLS, WORDS, TURNS, TEMPERATURE)}
        self._others: dict[str, Spread | Texts] = {}

    def add(self, row: Row) -> None:
        """Count one row."""
        self.rows += 1
        params = row["responses_create_params"]
        asked, tools = params.get("input"), params.get("tools")
        if tools is not None:
            self._spreads[TOOLS].add(len(tools))
        users = 1 if isinstance(asked, str) else sum(item.get("role") == "user" for item in asked)
        self._spreads[TURNS].add(users)
        self._spreads[WORDS].add(len(json.dumps(params).split()))
        temperature = params.get("temperature")
        if isinstance(temperature, (int, float)):
            self._spreads[TEMPERATURE].add(temperature)
        for name, value in row.items():
            self._add_other(name, value)

    def _add_other(self, name: str, value: Any) -> None:
        kind = Spread if isinstance(value, (bool, int, float)) else Texts if isinstance(value, str) else None
        if kind is None:
            return
        found = self._others.setdefault(name, kind())
        if isinstance(found, Spread) and isinstance(value, (bool, int, float)):
            found.add(float(value))
        elif isinstance(found, Texts):
            found.add(str(value))

    def summary(self) -> Tree:
        """Everything as one JSON object."""
        spreads = {name: spread.summary() for name, spread in self._spreads.items()}
        others = {name: other.summary() for name, other in self._others.items()}
        return {"Number of examples": self.rows, **spreads, **others}


def _rounded(value: float) -> float:
    return round(value, 2 if abs(value) >= 1 else 3)
