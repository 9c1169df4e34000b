"""The cache of `ludus credit`: a collection of continuations, each named after the receipt of its rollout.

It is a collection like any other, so an interrupted call goes on where it stopped, and a finished one is not repeated.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ludus.rollout import Rollout
from ludus.store.files import Files
from ludus.store.journal import Journal
from ludus.store.lines import StoredLines
from ludus.store.resume import read_attempts, read_rollouts


@dataclass
class Spending:
    """What continuations cost. Tokens are None if they are unknown for any of them."""

    continuations: int = 0
    model_calls: int = 0
    input_tokens: int | None = 0
    output_tokens: int | None = 0

    def add(self, usage: Any, calls: int, share: float = 1.0, continuations: int = 1) -> None:
        """Add continuations with so many model calls in all, for a share of the tokens in `usage`."""
        self.continuations += continuations
        self.model_calls += calls
        if not calls:
            return
        tokens = usage if isinstance(usage, dict) else {}
        self.input_tokens = _sum(self.input_tokens, tokens.get("input_tokens"), share)
        self.output_tokens = _sum(self.output_tokens, tokens.get("output_tokens"), share)

    def since(self, before: Spending) -> dict[str, int | None]:
        """What was spent after `before`."""
        earlier = asdict(before)
        return {
            name: None if value is None or earlier[name] is None else value - earlier[name]
            for name, value in asdict(self).items()
        }


@dataclass
class PointResults:
    """The continuations of one branch point: the rewards of completed ones, and how many have none that counts."""

    rewards: list[float] = field(default_factory=list)
    masked: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    cause: str = ""

    @property
    def done(self) -> int:
        """How many need not be played again."""
        return len(self.rewards) + self.masked


class Continuations:
    """What a folder of continuations holds, by branch point, and what all of it cost, failed attempts included."""

    def __init__(self, folder: Path) -> None:
        self.points: dict[str, PointResults] = {}
        self.spent = Spending()
        self._done: set[str] = set()
        if not folder.exists():
            return
        files = Files(folder)
        with Journal(files.rollouts), Journal(files.failures):  # repairs them, and refuses those that are being written
            with StoredLines(files.rollouts) as lines:
                for _, rollout in read_rollouts(lines):
                    self._add(rollout)
            for rollout, _ in read_attempts(files.failures, lines.seen):
                self._add(rollout)

    def of(self, point: str) -> PointResults:
        """The continuations of a branch point."""
        return self.points.get(point) or PointResults()

    def _add(self, rollout: Rollout) -> None:
        self.spent.add(rollout.usage, sum(not call.get("given") for call in rollout.calls))
        if rollout.rollout_id in self._done:
            return  # a failed attempt that was repeated with success
        results = self.points.setdefault(rollout.task_id, PointResults())
        if rollout.error is not None:
            results.failed[f"{rollout.error.stage}/{rollout.error.kind}"] += 1
            results.cause = rollout.error.cause
            return
        self._done.add(rollout.rollout_id)
        if rollout.outcome == "masked":
            results.masked += 1
        elif rollout.reward is not None:
            results.rewards.append(rollout.reward)


def _sum(total: int | None, tokens: Any, share: float) -> int | None:
    return total + round(tokens * share) if total is not None and isinstance(tokens, int) else None
