"""From comparisons to rewards: the mean score of each response, and adjustments for length and style."""

from __future__ import annotations

import re
from itertools import combinations
from typing import Literal, NamedTuple

from ludus.environments.genrm_compare.replies import Scores

Strategy = Literal["circular", "all_pairs"]
MIDDLE_RANKING = 3.5

_MARKS = (
    re.compile(r"^#{1,6}[ \t]", re.MULTILINE),
    re.compile(r"^[ \t]*(?:[-*+]|\d+\.)[ \t]", re.MULTILINE),
    re.compile(r"\*\*[^*\n]+\*\*|__[^_\n]+__"),
    re.compile("[\u2600-\u27bf\U0001f1e6-\U0001f1ff\U0001f300-\U0001faff]"),
)


class Pair(NamedTuple):
    """Two responses by their index in the group, and the number of the vote on them."""

    first: int
    second: int
    judge: int


def pairs(count: int, strategy: Strategy, judges: int) -> list[Pair]:
    """All comparisons of a group: each response with the next in a ring, or each with each."""
    if strategy == "circular":
        sides = [(index, (index + 1) % count) for index in range(count)]
    else:
        sides = list(combinations(range(count), 2))
    return [Pair(first, second, judge) for first, second in sides for judge in range(judges)]


def tie_broken(scores: Scores) -> tuple[float, float]:
    """The two scores; if they are equal, the ranking separates them."""
    if scores.first != scores.second:
        return scores.first, scores.second
    lead = MIDDLE_RANKING - scores.ranking
    return scores.first + lead, scores.second - lead


def mean_scores(count: int, compared: list[tuple[Pair, Scores]], default: float) -> list[float]:
    """The mean score of each response; `default` if it took part in no comparison."""
    earned: list[list[float]] = [[] for _ in range(count)]
    for pair, scores in compared:
        first, second = tie_broken(scores)
        earned[pair.first].append(first)
        earned[pair.second].append(second)
    return [sum(own) / len(own) if own else default for own in earned]


def shortest_bonus(scores: list[float], lengths: list[int], bonus: float, top: float) -> list[float]:
    """A bonus for the shortest non-empty response, if its score is among the best share `top` of the group."""
    bonuses = [0.0] * len(scores)
    filled = [index for index, length in enumerate(lengths) if length]
    if bonus and filled:
        shortest = min(filled, key=lengths.__getitem__)
        if scores[shortest] >= _percentile(scores, 1 - top):
            bonuses[shortest] = bonus
    return bonuses


def relative(measures: list[float], coefficient: float, eligible: list[bool]) -> list[float]:
    """More for smaller measures, less for larger ones. The range is as wide as the coefficient; the sum is 0.

    A response that is not eligible counts as the largest.
    """
    chosen = [measure for measure, counts in zip(measures, eligible, strict=True) if counts]
    least, most = min(chosen, default=0.0), max(chosen, default=0.0)
    if not coefficient or least == most:
        return [0.0] * len(measures)
    weights = [
        (most - measure) / (most - least) if counts else 0.0 for measure, counts in zip(measures, eligible, strict=True)
    ]
    mean = sum(weights) / len(weights)
    return [coefficient * (weight - mean) for weight in weights]


def style_density(text: str) -> float:
    """Headings, list items, bold texts and emoji outside of code, per character."""
    parts = text.split("```")
    prose = "".join(parts[::2]) if len(parts) % 2 else "".join(parts[:-1:2]) + parts[-1]
    return sum(len(mark.findall(prose)) for mark in _MARKS) / len(text) if text else 0.0


def _percentile(values: list[float], share: float) -> float:
    """The value below which a share of the values lies, with linear interpolation."""
    ordered = sorted(values)
    place = (len(ordered) - 1) * share
    below = min(int(place), len(ordered) - 2) if len(ordered) > 1 else 0
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)
