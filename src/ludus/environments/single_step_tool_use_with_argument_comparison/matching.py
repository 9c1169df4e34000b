"""Pairs the model's function calls with the expected calls, and rewards the matches."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict

from ludus.environments.single_step_tool_use_with_argument_comparison.arguments import ArgumentComparison

#: Why calls do not match, from the largest difference to the smallest.
Mismatch = Literal["count", "tool", "arguments", "keys", "type", "length", "value"]
_FAR_TO_NEAR: tuple[Mismatch, ...] = ("count", "tool", "arguments", "keys", "type", "length", "value")

#: The number of extra calls that are ignored. More than that count as guessing.
FREE_CALLS = 8


class Call(NamedTuple):
    """A function call with parsed arguments. `readable` is False if they are not JSON."""

    name: str
    arguments: Any
    readable: bool

    @classmethod
    def of(cls, name: Any, arguments: Any) -> Call:
        try:
            return cls(str(name), json.loads(arguments), True)
        except (ValueError, TypeError, RecursionError):
            return cls(str(name), None, False)


class ComparatorConfig(BaseModel):
    """How calls are compared and rewarded."""

    model_config = ConfigDict(extra="forbid")

    #: Texts of several words match if shared words / (words of one + words of the other) is at least this.
    word_count_similarity_threshold: float = 0.1
    floating_point_comparison_threshold: float = 1e-6
    #: Whether several calls earn partial rewards. If not, all expected calls must match, and extra calls are ignored.
    parallel_tool_call_rewarding: bool = False
    parallel_tool_call_reward_mode: Literal["binary_strict", "fractional", "f1"] = "binary_strict"
    #: Whether fewer, or more, calls than expected can earn a reward.
    allow_subset: bool = False
    allow_superset: bool = False


class Score(NamedTuple):
    """The reward of a set of calls, and why it is not 1."""

    reward: float
    mismatch: Mismatch | None = None


def score(expected: list[Call], actual: list[Call], config: ComparatorConfig, compat: bool = False) -> Score:
    """The reward for the actual calls, compared with the expected calls. The order does not matter."""
    fewer, more = len(actual) < len(expected), len(actual) > len(expected)
    if config.parallel_tool_call_rewarding:
        if (fewer and not config.allow_subset) or (more and not config.allow_superset):
            return Score(0.0, "count")
    elif len(actual) > len(expected) + FREE_CALLS and not compat:
        return Score(0.0, "count")
    comparison = ArgumentComparison(
        config.word_count_similarity_threshold, config.floating_point_comparison_threshold, literal=compat
    )
    table = [[_mismatch(call, other, comparison) for other in actual] for call in expected]
    matched = _count_pairs(table)
    reward = _reward(matched, len(expected), len(actual), config)
    if reward == 1.0:
        return Score(reward)
    if matched == min(len(expected), len(actual)):
        return Score(reward, "count")
    return Score(reward, _nearest(table))


def _reward(matched: int, expected: int, actual: int, config: ComparatorConfig) -> float:
    if not config.parallel_tool_call_rewarding:
        return float(matched == expected)
    if config.parallel_tool_call_reward_mode == "f1":
        return 2 * matched / (expected + actual)
    required = min(expected, actual) if config.allow_subset else expected
    if config.parallel_tool_call_reward_mode == "fractional":
        return matched / required if required else 0.0
    return float(matched >= required)


def _mismatch(expected: Call, actual: Call, comparison: ArgumentComparison) -> Mismatch | None:
    if expected.name != actual.name:
        return "tool"
    if not (expected.readable and actual.readable):
        return "arguments"
    try:
        return comparison.difference(expected.arguments, actual.arguments)
    except RecursionError:
        return "value"


def _count_pairs(table: list[list[Mismatch | None]]) -> int:
    """How many expected calls can be paired with different actual calls: the size of a maximum matching."""
    partner: dict[int, int] = {}

    def find(expected: int, seen: set[int]) -> bool:
        for actual, mismatch in enumerate(table[expected]):
            if mismatch is None and actual not in seen:
                seen.add(actual)
                if actual not in partner or find(partner[actual], seen):
                    partner[actual] = expected
                    return True
        return False

    return sum(find(expected, set()) for expected in range(len(table)))


def _nearest(table: Iterable[list[Mismatch | None]]) -> Mismatch:
    """For the first expected call that no actual call matches, how the nearest actual call differs."""
    for row in table:
        mismatches = [mismatch for mismatch in row if mismatch is not None]
        if mismatches and len(mismatches) == len(row):
            return max(mismatches, key=_FAR_TO_NEAR.index)
    return "count"
