"""Exports block by block: the rollouts in a block of lines become lines of the training set, written in order.

A large run is exported in helper processes on all cores. They get lines and return lines, so a run that `ludus verify`
replaces meanwhile is exported as it was. A helper that dies loses nothing: its block is made here.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ludus.data.export.conversation import LeftOut, Losses
from ludus.data.export.format import Choices, Format, Unit
from ludus.data.export.pairs import PairRule
from ludus.data.export.registry import format_named
from ludus.data.export.selection import Selection
from ludus.data.filters import Filters
from ludus.errors import UserError
from ludus.runtime.encoding import encode
from ludus.runtime.processes import ProcessPool, processors
from ludus.runtime.running import fewer_garbage_collections, run_to_end
from ludus.store.records import LineBlock, Records

#: About the bytes of a block. Helpers take half a second to start, so they are started for runs of at least MIN_BYTES.
BLOCK_BYTES = 1 << 20
MIN_BYTES = 64 << 20
MAX_HELPERS = 8
#: The bytes of blocks that are held at once, and of one block that is sent to a helper. One line can have many more.
_HELD_BYTES = 32 << 20
_SENT_BYTES = 8 << 20
_TIMEOUT = 3600.0


class MadeBlock(NamedTuple):
    """What a block became. `read` are its bytes; `origins` are the lines of the second file, if there is one."""

    read: int
    lines: bytes
    origins: bytes
    rows: int
    rollouts: int
    used: int
    left_out: Counter[str]
    losses: Counter[str]


@dataclass(frozen=True, slots=True)
class Recipe:
    """What an export does with each rollout of a file."""

    path: Path
    format: str
    choices: Choices
    filters: Filters

    def make(self, block: LineBlock) -> MadeBlock:
        """The lines of a block."""
        losses = Losses()
        made = format_named(self.format)(self.choices, losses)
        lines, origins, rows, used = bytearray(), bytearray(), 0, 0
        with Records(self.path, block) as records, fewer_garbage_collections():
            selection = Selection(records, self.filters, PairRule(), made.takes, lambda _: None)
            for unit, new in made_lines(made, selection):
                used += len(unit)
                rows += len(new)
                lines += b"".join(new)
                if made.origins_beside:
                    origins += origin_lines(unit, len(new))
        counts = rows, selection.rollouts, used, selection.left_out, losses.counts
        return MadeBlock(len(block.lines), bytes(lines), bytes(origins), *counts)


def made_lines(made: Format, selection: Selection) -> Iterator[tuple[Unit, list[bytes]]]:
    """The lines of each unit. The rollouts of a unit that the format cannot hold are counted as left out."""
    for unit in selection.units():
        lines = lines_of(made, unit, selection)
        if lines is not None:
            yield unit, lines


def lines_of(made: Format, unit: Unit, selection: Selection) -> list[bytes] | None:
    """The lines of a unit; None, and counted, if the format cannot hold it."""
    try:
        return [made.line(row) for row in made.rows(unit)]
    except LeftOut as reason:
        selection.left_out[str(reason)] += len(unit)
        return None


def origin_lines(unit: Unit, rows: int) -> bytes:
    """The lines of the second file for the rows of a unit."""
    return (encode(unit[0].origin()) + b"\n") * rows


def make_blocks(recipe: Recipe, records: Records, take: Callable[[MadeBlock], None]) -> None:
    """Give every block of a file to `take`, in order."""
    if records.size >= MIN_BYTES and processors() > 1:
        run_to_end(_make_in_helpers(recipe, records, take))
        return
    for block in records.blocks(BLOCK_BYTES):
        take(recipe.make(block))


async def _make_in_helpers(recipe: Recipe, records: Records, take: Callable[[MadeBlock], None]) -> None:
    helpers = min(processors(), MAX_HELPERS)
    begun: deque[asyncio.Task[MadeBlock]] = deque()
    held = 0
    async with ProcessPool(helpers, memory=None) as pool:
        try:
            for block in records.blocks(BLOCK_BYTES):
                begun.append(asyncio.create_task(_make_in_helper(recipe, block, pool)))
                held += len(block.lines)
                while len(begun) > 2 * helpers or held > _HELD_BYTES:  # each has one to make and one to go on with
                    made = await begun.popleft()
                    held -= made.read
                    take(made)
            while begun:
                take(await begun.popleft())
        finally:
            for task in begun:
                task.cancel()
            await asyncio.gather(*begun, return_exceptions=True)


async def _make_in_helper(recipe: Recipe, block: LineBlock, pool: ProcessPool) -> MadeBlock:
    if len(block.lines) > _SENT_BYTES:
        return recipe.make(block)
    try:
        return await pool.run(make_block, recipe, block, timeout=_TIMEOUT)
    except UserError:
        raise
    except Exception:  # the helper could not start, or died
        return recipe.make(block)


def make_block(recipe: Recipe, block: LineBlock) -> MadeBlock:
    """`Recipe.make`, as a helper calls it."""
    return recipe.make(block)
