"""Exports block by block: the rollouts in a block of lines become rows of the training set, written in order.

A large run is exported in helper processes on all cores. They get lines and return packed rows, so a run that `ludus
verify` replaces meanwhile is exported as it was. A helper that dies loses nothing: its block is made here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pickle import PickleBuffer

from ludus.errors import UserError
from ludus.runtime.ordered import InOrder
from ludus.runtime.processes import ProcessPool, processors
from ludus.runtime.running import run_to_end
from ludus.store.lines import Block
from ludus_data.export.recipe import MadeBlock, Recipe, make_block
from ludus_data.export.records import Records

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
    helpers, blocks = min(processors(), MAX_HELPERS), records.blocks(BLOCK_BYTES)

    def take_or_raise(block: MadeBlock | UserError) -> None:
        if isinstance(block, UserError):
            raise block
        take(block)

    results = InOrder(take_or_raise, lambda block: block.read if isinstance(block, MadeBlock) else 0, _HELD_BYTES)

    async def make(pool: ProcessPool) -> None:
        while (block := next(blocks, None)) is not None:
            index = results.take()
            try:
                outcome: MadeBlock | UserError = await _make_in_helper(recipe, block, pool)
            except UserError as error:  # raised when its turn comes: an earlier block may have an error, too
                outcome = error
            results.add(index, outcome)
            await results.room()

    async with ProcessPool(helpers, memory=None) as pool:
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(2 * helpers):  # each helper has a block to make and one to go on with
                    group.create_task(make(pool))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None


async def _make_in_helper(recipe: Recipe, block: Block, pool: ProcessPool) -> MadeBlock:
    if block.length > _SENT_BYTES or block.lines is None:
        return recipe.make(block)
    try:
        lines = PickleBuffer(block.lines)
        return await pool.run(make_block, recipe, lines, block.number, block.duplicates, timeout=_TIMEOUT)
    except UserError:
        raise
    except Exception:  # the helper could not start, or died
        return recipe.make(block)
