"""A seeded shuffle of lines that need not fit into memory.

Lines are held in memory up to a limit. Beyond it, each line goes to one of 64 temporary files at random; then the files
are shuffled one after another, and a file that is still too large is divided again. Every order is equally likely, and
the same lines with the same seed give the same order. The memory is the limit plus about 60 bytes for each line.
"""

from __future__ import annotations

import itertools
import random
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import BinaryIO

from ludus.errors import UserError

#: The bytes of lines that are held in memory at once.
MEMORY = 64 * 2**20
_FILES = 64


def shuffled(lines: Iterable[bytes], seed: int, memory: int = MEMORY) -> Iterator[bytes]:
    """The lines in a random order. Each must end with a newline."""
    try:
        yield from _shuffled(lines, random.Random(seed), memory)
    except OSError as error:
        cause = f"cannot shuffle in {tempfile.gettempdir()}: {error.strerror}"
        raise UserError(cause, "Set TMPDIR to a folder with more room") from error


def _shuffled(lines: Iterable[bytes], draw: random.Random, memory: int) -> Iterator[bytes]:
    left = iter(lines)
    held, size = _hold(left, memory)
    if size <= memory or len(held) < 2:
        draw.shuffle(held)
        yield from held
        return
    with ExitStack() as stack:
        files: dict[int, BinaryIO] = {}
        for line in itertools.chain(held, left):
            number = draw.randrange(_FILES)
            if number not in files:
                files[number] = stack.enter_context(tempfile.TemporaryFile(prefix="ludus-shuffle-"))
            files[number].write(line)
        held.clear()
        for number in sorted(files):
            files[number].seek(0)
            yield from _shuffled(files[number], draw, memory)
            files[number].truncate(0)


def _hold(lines: Iterator[bytes], memory: int) -> tuple[list[bytes], int]:
    """The first lines, at least two, until they exceed the memory, and their size."""
    held, size = [], 0
    for line in lines:
        held.append(line)
        size += len(line)
        if size > memory and len(held) > 1:
            break
    return held, size
