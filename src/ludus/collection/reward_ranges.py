"""Rewards outside of the range that an environment declares: a verifier's mistake, or a missing `reward_range`.

They are warnings: the reward is what the verifier said. But a range that is wrong leaves the mean without a confidence
interval, and a 2.0 among rewards of 0 and 1 moves every advantage of its group.
"""

from __future__ import annotations

from ludus.environment import Environment
from ludus.game import Game
from ludus.resources import Resources
from ludus.runtime.imports import place_of
from ludus.store.figures import USUAL_RANGE


def outside_of_range(environment: Environment, lowest: float, highest: float) -> list[str]:
    """A sentence if rewards between these bounds do not fit the range of an environment, with the verifier's place."""
    low, high = environment.reward_range or USUAL_RANGE
    if low <= lowest and highest <= high:
        return []
    resources = environment.resources
    method: object = resources.step if issubclass(resources, Game) else resources.verify
    if resources.verify_group is not Resources.verify_group:
        method = resources.verify_group
    declared = "its reward_range" if environment.reward_range else "the range of an environment that declares none"
    # the sentence names no reward: the shards of a run must say the same as the whole run
    return [
        f"{place_of(method, resources)}: {environment.name} gave rewards outside of [{low:g}, {high:g}], {declared}."
        " Write reward_range: [LOWEST, HIGHEST] in environment.yaml, or change the rewards"
    ]
