"""Endless rows, each with another seed for the environment's reset."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ludus.game import starting_points

INSTRUCTION = (
    "You play a game, one action in each answer. Think as long as you like, then end your answer with your action, "
    "written as <action>ACTION</action>."
)


def stream(seed: int, *, instruction: str = INSTRUCTION) -> Iterator[dict[str, Any]]:
    """Endless rows with distinct seeds.

    stream(7, instruction="Answer with <action>ACTION</action> and nothing else.")
    """
    return starting_points(seed, instruction)
