"""A seeded shuffle of lines that need not fit into memory.

Lines are held in memory up to a limit. Beyond it, each line goes to one of 64 parts of a temporary file at random; then
the parts are shuffled one after another, and a part that is still too large is divided again. Every order is equally
likely, and the same lines with the same seed give the same order. The memory is the limit plus about 60 bytes for each
line.
"""

from __future__ import annotations

import io
import itertools
import random
from collections.abc import Iterable, Iterator

from ludus.store.partitions import Partitions
from ludus.store.scratch import Scratch

#: The bytes of lines that are held in memory at once.
MEMORY = 64 * 2**20
_PARTS = 64


def shuffled(lines: Iterable[bytes], seed: int, memory: int = MEMORY) -> Iterator[bytes]:
    """The lines in a random order. Each must end with a newline."""
    return _shuffled(lines, random.Random(seed), memory)


def _shuffled(lines: Iterable[bytes], draw: random.Random, memory: int) -> Iterator[bytes]:
    left = iter(lines)
    held, size = _hold(left, memory)
    if size <= memory or len(held) < 2:
        draw.shuffle(held)
        yield from held
        return
    with Scratch("ludus-shuffle-") as scratch:
        partitions = Partitions(scratch, _PARTS)
        for line in itertools.chain(held, left):
            partitions.add(draw.randrange(_PARTS), line)
        held.clear()
        for part in range(_PARTS):
            parted = (line for block in partitions.blocks(part) for line in io.BytesIO(block))
            yield from _shuffled(parted, draw, memory)


def _hold(lines: Iterator[bytes], memory: int) -> tuple[list[bytes], int]:
    """The first lines, at least two, until they exceed the memory, and their size."""
    held, size = [], 0
    for line in lines:
        held.append(line)
        size += len(line)
        if size > memory and len(held) > 1:
            break
    return held, size
