"""An endless stream of rows that differ in the seed of the environment's reset."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ludus.game import starting_points

INSTRUCTION = (
    "You act in an environment, step by step. Where you have tools, call one to act, and answer in words when you are "
    "done. Where you have none, your whole answer is your next action."
)


def stream(seed: int, *, instruction: str = INSTRUCTION) -> Iterator[dict[str, Any]]:
    """Rows with different seeds.

    stream(7, instruction="Win the game.")
    """
    for row in starting_points(seed, instruction):
        yield {"responses_create_params": row["responses_create_params"], "reset": {"seed": row["seed"]}}
