"""Starting points without end: rows that differ in the seed that the environment is reset with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ludus.game import starting_points

INSTRUCTION = (
    "You play a game, one action in each answer. Think as long as you like, then end your answer with your action, "
    "written as <action>ACTION</action>."
)


def stream(seed: int, *, instruction: str = INSTRUCTION) -> Iterator[dict[str, Any]]:
    """Rows with seeds, no two of them alike.

    stream(7, instruction="Answer with <action>ACTION</action> and nothing else.")
    """
    return starting_points(seed, instruction)
