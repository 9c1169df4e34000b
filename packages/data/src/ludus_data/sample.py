"""`ludus data sample`: random rows of a dataset, each with the same probability, in the order of the input.

Only the sampled rows are held in memory.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

from ludus.data.row_checks import unambiguous_row
from ludus_data.inputs import Inputs, Tick


def sample(
    files: Sequence[str | Path], count: int, seed: int = 0, tick: Tick = lambda _: None
) -> tuple[list[tuple[str, bytes]], int]:
    """`count` lines with their places, or all if there are fewer; and the number of all rows. Same seed, same rows."""
    draw = random.Random(seed)
    held: list[tuple[int, str, bytes]] = []
    rows = 0
    for number, (where, line) in enumerate(Inputs(files, tick).lines()):
        rows += 1
        if len(held) < count:
            held.append((number, where, line))
        elif (place := draw.randrange(rows)) < count:
            held[place] = number, where, line
    held.sort()
    for _, where, line in held:
        unambiguous_row(where, line)
    return [(where, line) for _, where, line in held], rows
