"""Pairs: the best rollout of a task against its worst.

- A tie gives no pair: the best reward must be greater than the worst.
- `margin` is the least difference of the two rewards.
- `length_ratio` bounds the longer length as a multiple of the shorter. Rewards often grow with length; without a limit
  a model may learn length instead. If several rollouts share the best or the worst reward, the two closest in length
  are taken. Without `length_ratio`, the first by repeat are taken.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ludus.errors import UserError
from ludus_data.export.grouping import IndexedRollout

#: Why the rollouts of a task are left out of pairs.
ALONE, TIE, MARGIN, LENGTH = "only rollout of its task", "tie", "margin", "length ratio"
BETWEEN = "neither best nor worst"
#: Differences this close to the margin, as a share of it, reach it: 0.3 - 0.1 is a little less than 0.2.
_TOLERANCE = 1e-9


class Pair(NamedTuple):
    """The better and the worse rollout of a task."""

    chosen: IndexedRollout
    rejected: IndexedRollout


@dataclass(frozen=True, slots=True)
class PairRule:
    """Which pair a task gives, if any."""

    margin: float = 0.0
    length_ratio: float | None = None

    def __post_init__(self) -> None:
        if not self.margin >= 0:
            raise UserError(f"--margin {self.margin:g} is negative", "Give 0 or more")
        if self.length_ratio is not None and not self.length_ratio >= 1:
            raise UserError(f"--length-ratio {self.length_ratio:g} is less than 1", "Give 1 or more, such as 1.5")

    def pair(self, members: Sequence[IndexedRollout]) -> Pair | str:
        """The pair of a task's kept rollouts, or the reason why there is none."""
        if len(members) < 2:
            return ALONE
        rewards = [member.reward for member in members]
        most, least = max(rewards), min(rewards)
        if most == least:
            return TIE
        if most - least < self.margin and not math.isclose(most - least, self.margin, rel_tol=_TOLERANCE):
            return MARGIN
        best = [member for member in members if member.reward == most]
        worst = [member for member in members if member.reward == least]
        if self.length_ratio is None:
            return Pair(best[0], worst[0])
        pair = _closest(best, worst)
        return pair if _ratio(pair) <= self.length_ratio else LENGTH


def _closest(best: list[IndexedRollout], worst: list[IndexedRollout]) -> Pair:
    """The pair with the least ratio of lengths, in O(n log n): both lists are walked in order of length."""
    ordered_best = sorted(best, key=lambda member: member.length)
    ordered_worst = sorted(worst, key=lambda member: member.length)
    closest = Pair(ordered_best[0], ordered_worst[0])
    i = j = 0
    while i < len(ordered_best) and j < len(ordered_worst):
        pair = Pair(ordered_best[i], ordered_worst[j])
        if _ratio(pair) < _ratio(closest):
            closest = pair
        if pair.chosen.length < pair.rejected.length:
            i += 1
        else:
            j += 1
    return closest


def _ratio(pair: Pair) -> float:
    short, long = sorted((pair.chosen.length, pair.rejected.length))
    return long / short if short else float("inf") if long else 1.0
