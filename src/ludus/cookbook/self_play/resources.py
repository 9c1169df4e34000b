"""Nim: two players take stones in turn from one of several heaps. Whoever takes the last stone wins.

The other player is a script without mistakes, or the model itself (`resources.opponent=self`), which then moves for
both sides. In that case the winner's last move earns 1 and the loser's -1: losing to oneself on purpose gains nothing.
"""

from __future__ import annotations

import re
from functools import reduce
from operator import xor
from typing import Literal

import ludus
from ludus import Game, ResourcesConfig, Response, Step

_MOVE = re.compile(r"<take>\s*(\d{1,3})\s+from\s+(\d{1,3})\s*</take>", re.IGNORECASE)


class Nim(Game):
    """The heaps of one rollout. The rows are positions in which the first player can win."""

    class Task(ludus.Task):
        heaps: list[int]

    class Config(ResourcesConfig):
        opponent: Literal["perfect", "self"] = "perfect"

    async def reset(self, task: Task) -> str:
        self.heaps = list(task.heaps)
        return f"Heaps: {self.heaps}. You are player 1. Write <take>STONES from HEAP</take>; the first heap is 1."

    async def step(self, task: Task, response: Response) -> Step:
        moves = _MOVE.findall(response.output_text)
        legal = len(moves) == 1 and self.take(*map(int, moves[0]))
        if not legal or not any(self.heaps):
            return self.end(won=legal)
        if self.config.opponent == "self":
            return Step(f"Heaps: {self.heaps}. You are player {2 - len(self.steps) % 2} now.")
        self.take(*best_move(self.heaps))
        return Step(f"Heaps: {self.heaps}. Your move.") if any(self.heaps) else self.end(won=False)

    def take(self, stones: int, heap: int) -> bool:
        """Take stones from a heap. Returns False, and takes none, if that is against the rules."""
        legal = 1 <= heap <= len(self.heaps) and 1 <= stones <= self.heaps[heap - 1]
        self.heaps = [size - stones * (legal and number == heap) for number, size in enumerate(self.heaps, start=1)]
        return legal

    def end(self, won: bool) -> Step:
        """The last step. If the model plays both sides, the step before it was the other side's."""
        if self.config.opponent == "self" and self.steps:
            self.steps[-1].reward = -1.0 if won else 1.0
        return Step(reward=1.0 if won else -1.0, terminated=True, info={"won": won})


def best_move(heaps: list[int]) -> tuple[int, int]:
    """The move (stones, heap) after which the exclusive or of all heaps is 0, which wins; or one stone if none does."""
    moves = [(size - (size ^ reduce(xor, heaps)), heap) for heap, size in enumerate(heaps, start=1)]
    return next((move for move in moves if move[0] > 0), (1, heaps.index(max(heaps)) + 1))
