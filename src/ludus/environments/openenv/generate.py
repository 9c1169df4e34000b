"""Starting points without end: rows that differ in the seed that the environment is reset with."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

INSTRUCTION = (
    "You act in an environment, step by step. Where you have tools, call one to act, and answer in words when you are "
    "done. Where you have none, your whole answer is your next action."
)


def stream(seed: int, *, instruction: str = INSTRUCTION) -> Iterator[dict[str, Any]]:
    """Rows with seeds, no two of them alike.

    stream(7, instruction="Win the game.")
    """
    chance, drawn = random.Random(seed), set()
    while True:
        start = chance.getrandbits(31)
        if start not in drawn:
            drawn.add(start)
            asked = [{"role": "system", "content": instruction}, {"role": "user", "content": "Begin."}]
            yield {"responses_create_params": {"input": asked}, "reset": {"seed": start}}
