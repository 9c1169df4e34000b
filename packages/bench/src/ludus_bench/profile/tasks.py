"""The profile of one task: how often it is passed, how much its rewards vary, and whether a group of it teaches."""

from __future__ import annotations

import math
from typing import Any

from ludus.response import Item
from ludus.rollout import Rollout
from ludus.store.statistics import ClusteredMean, Comoments
from ludus.task import name_of_task

#: A group of fewer completed rollouts has no differences to learn from.
MIN_GROUP_SIZE = 2


class TaskProfile:
    """Sums over the rollouts of one task, of all runs that are profiled together.

    `tokens` and `characters` pair the length of each completed rollout with its reward.
    """

    __slots__ = (
        "_group",
        "_highest",
        "_lowest",
        "characters",
        "completed",
        "environment",
        "failed",
        "groups",
        "masked",
        "name",
        "passed",
        "signals",
        "task_id",
        "tokens",
    )

    def __init__(self, environment: str, task_id: str, about: str = "") -> None:
        """`about` is the text of the task's prompt."""
        self.environment = environment
        self.task_id = task_id
        self.name = name_of_task(task_id, about)  #: what tables call it
        self.completed = self.failed = self.masked = self.passed = 0
        self.groups = self.signals = 0
        self.tokens, self.characters = Comoments(), Comoments()
        self._group, self._lowest, self._highest = 0, math.inf, -math.inf

    def add_reward(self, reward: float, passed: bool) -> None:
        """Count a completed rollout of the current run."""
        self.completed += 1
        self.passed += passed
        self._group += 1
        self._lowest, self._highest = min(self._lowest, reward), max(self._highest, reward)

    def end_group(self) -> None:
        """The current run is read: its completed rollouts of this task were one group.

        Rollouts of different runs are not compared, because a trainer does not compare them either.
        """
        if self._group >= MIN_GROUP_SIZE:
            self.groups += 1
            self.signals += self._highest > self._lowest
        self._group, self._lowest, self._highest = 0, math.inf, -math.inf

    @property
    def pass_rate(self) -> float | None:
        """The share of completed rollouts that passed, or None if none completed."""
        return self.passed / self.completed if self.completed else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % confidence interval of the pass rate; None with fewer than two completed rollouts."""
        rate = ClusteredMean()
        for number in range(self.completed):  # within a task, rollouts are independent: each is a cluster
            rate.add(1, float(number < self.passed))
        return rate.interval((0.0, 1.0))

    def row(self) -> dict[str, Any]:
        """The line of this task in the difficulty file."""
        interval, rewards = self.interval, self.characters
        return {
            "task_id": self.task_id,
            "name": self.name,
            "environment": self.environment,
            "completed": self.completed,
            "failed": self.failed,
            "masked": self.masked,
            "passed": self.passed,
            "pass_rate": self.pass_rate,
            "ci95": list(interval) if interval is not None else None,
            "mean_reward": rewards.mean_y if rewards.count else None,
            "variance": rewards.variance_y,
            "groups": self.groups,
            "groups_with_signal": self.signals,
            "mean_output_tokens": self.tokens.mean_x if self.tokens.count else None,
        }


def items_of(rollout: Rollout) -> list[Item]:
    """The items of a rollout. A stored row may hold anything in their place, which is not looked at."""
    output: Any = rollout.response.output if rollout.response is not None else []
    return [item for item in output if isinstance(item, dict)] if isinstance(output, list) else []


def written_characters(rollout: Rollout) -> int:
    """How many characters the model wrote: texts, reasoning and the arguments of its calls."""
    total = 0
    for item in items_of(rollout):
        kind = item.get("type", "message")
        if kind == "function_call":
            total += len(str(item.get("arguments") or ""))
        elif kind == "reasoning" or (kind == "message" and item.get("role") == "assistant"):
            total += sum(_length(part) for key in ("content", "summary") for part in _parts(item.get(key)))
    return total


def _parts(content: Any) -> list[Any]:
    return content if isinstance(content, list) else [content]


def _length(part: Any) -> int:
    text = part.get("text") if isinstance(part, dict) else part
    return len(text) if isinstance(text, str) else 0
