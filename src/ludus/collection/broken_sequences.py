"""Rollouts whose tokens are several sequences though they are one conversation: how many, why, and what that costs."""

from __future__ import annotations

from collections import Counter
from typing import Any


class BrokenSequences:
    """Counts the calls whose prompt does not continue the call before it (`broke` in their record)."""

    __slots__ = ("_first", "_reasons", "_repeated", "_rollouts")

    def __init__(self) -> None:
        self._rollouts = self._repeated = 0
        self._reasons: Counter[str] = Counter()
        self._first: str | None = None

    def add(self, calls: list[dict[str, Any]]) -> None:
        """Count the calls of a rollout."""
        broken = broken_calls(calls)
        if broken:
            self._rollouts += 1
            self._first = self._first or broken[0][0]
            for why, repeated in broken:
                self._reasons[why.partition(": ")[0]] += 1
                self._repeated += repeated

    def summary(self) -> dict[str, Any]:
        """How many rollouts broke, into how many more sequences, and how many tokens of context these repeat."""
        return {
            "rollouts": self._rollouts,
            "sequences": self._reasons.total(),
            "repeated_tokens": self._repeated,
            "why": dict(self._reasons.most_common()),
            "first": self._first,
        }


def broken_calls(calls: list[dict[str, Any]]) -> list[tuple[str, int]]:
    """Why each sequence after the first began, and the tokens of its first prompt."""
    return [(str(call["broke"]), int(call["prefix"]) + len(call["prompt_ids"])) for call in calls if call.get("broke")]


def broken_row(summary: Any) -> str | None:
    """The summary as a sentence; None if nothing broke."""
    if not isinstance(summary, dict) or not summary.get("rollouts"):
        return None
    rollouts, more, repeated = (summary.get(key) or 0 for key in ("rollouts", "sequences", "repeated_tokens"))
    what = f"{rollouts:,} rollout{'' if rollouts == 1 else 's'} broke into {more:,} more"
    return f"{what}, which repeat {repeated:,} tokens; the first because {summary.get('first')}"
