"""Whether the records of a run that met faults are right: one record for each rollout, and no reward after a fault."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ludus.collection.progress import Mark


@dataclass
class Faults:
    """The faults that happened: how many of each, and the seeds of the rollouts that must not have a reward."""

    counts: Counter[str] = field(default_factory=Counter)
    struck: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, marks: Iterable[Mark]) -> Faults:
        """The faults that were noted in the progress of a run."""
        noted = list(marks)
        return cls(Counter(fault for fault, _ in noted), {seed for _, seed in noted if seed is not None})


@dataclass
class RecordCheck:
    """What was broken on purpose, and what is wrong with the records."""

    faults: dict[str, int]
    rollouts: int
    problems: list[str]
    warnings: list[str]

    def row(self) -> dict[str, Any]:
        """The check as metrics.json has it."""
        return {"faults": self.faults, "rollouts": self.rollouts, "problems": self.problems}

    def __str__(self) -> str:
        listed = ", ".join(f"{name} {count}" for name, count in sorted(self.faults.items())) or "none"
        if self.problems:
            more = f" (and {len(self.problems) - 1} more)" if len(self.problems) > 1 else ""
            return f"chaos: the records are wrong: {self.problems[0]}{more}. Faults: {listed}"
        return f"chaos: {self.rollouts} rollouts, each with one record, none scored on a fault. Faults: {listed}"


def check_records(
    expected: Iterable[str], rollouts: Iterable[dict[str, Any]], failures: Iterable[dict[str, Any]], faults: Faults
) -> list[str]:
    """What is wrong with the records of a run that met faults; nothing if every rollout ended once, and honestly."""
    wrong: list[str] = []
    scored, attempts = dict[str, int](), set[tuple[str, int]]()
    for row in rollouts:
        name = row["rollout_id"]
        if name in scored:
            wrong.append(f"{name} is recorded twice")
        scored[name] = row.get("attempt", 1)
        if row.get("rollout_seed") in faults.struck:
            wrong.append(f"{name} has a reward although it met a fault")
    for row in failures:
        name, attempt = row["rollout_id"], row.get("attempt", 1)
        if (name, attempt) in attempts or scored.get(name, attempt + 1) <= attempt:
            wrong.append(f"{name} is recorded twice")
        attempts.add((name, attempt))
        if row.get("reward") is not None:
            wrong.append(f"{name} failed and has a reward")
    ended = scored.keys() | {name for name, _ in attempts}
    wrong += [f"{name} has no record" for name in expected if name not in ended]
    return wrong
