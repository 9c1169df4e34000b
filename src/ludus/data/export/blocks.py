"""Exports block by block: the rollouts in a block of lines become rows of the training set, written in order.

A large run is exported in helper processes on all cores. They get lines and return packed rows, so a run that `ludus
verify` replaces meanwhile is exported as it was. A helper that dies loses nothing: its block is made here.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from pickle import PickleBuffer

from ludus.data.export.recipe import MadeBlock, Recipe, make_block
from ludus.errors import UserError
from ludus.runtime.processes import ProcessPool, processors
from ludus.runtime.running import run_to_end
from ludus.store.records import LineBlock, Records

#: About the bytes of a block. Helpers take up to half a second to start, so only runs of MIN_BYTES and more get them.
BLOCK_BYTES = 1 << 20
MIN_BYTES = 64 << 20
MAX_HELPERS = 8
#: The bytes of blocks that are held at once, and of one block that is sent to a helper. One line can have many more.
_HELD_BYTES = 32 << 20
_SENT_BYTES = 8 << 20
_TIMEOUT = 3600.0


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
        return await pool.run(make_block, recipe, PickleBuffer(block.lines), block.number, timeout=_TIMEOUT)
    except UserError:
        raise
    except Exception:  # the helper could not start, or died
        return recipe.make(block)
