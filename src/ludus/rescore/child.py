"""The helper process of `ludus verify`: it scores whole blocks of lines and returns the results."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ludus.rescore.ordered import score_lines
from ludus.rescore.scoring import Scorers
from ludus.store.lines import Block, StoredLines

_WORKERS = 16


@dataclass(frozen=True)
class HelperSettings:
    """The settings of a helper process, the same for every block. `options` are keyword arguments of `Scorers`."""

    environment: list[str] | str | None
    settings: dict[str, Any]
    options: dict[str, Any]


class _Helper:
    """The state between blocks: an event loop, and the scorers with their environments' shared resources."""

    def __init__(self, settings: HelperSettings) -> None:
        gc.freeze()
        gc.set_threshold(50000, 20, 100)  # scoring creates many objects and few reference cycles
        self.runner = asyncio.Runner()
        self.stack = contextlib.AsyncExitStack()
        self.scorers = self.runner.run(self._open(settings))

    async def _open(self, settings: HelperSettings) -> Scorers:
        scorers = Scorers(self.stack, settings.settings, **settings.options)
        if settings.environment is not None:
            await scorers.set_environment(settings.environment)
        return scorers


def prepare(settings: bytes) -> None:
    """Load the environment before the first block. `settings` is a pickled `HelperSettings`, here and below."""
    _helper(settings)


def score_block(settings: bytes, path: Path, block: Block) -> tuple[bytes | None, Any]:
    """The lines to write for a block of a file, or None if none changed, and the changes."""
    helper = _helper(settings)
    with StoredLines(path, block) as source:
        scored = helper.runner.run(score_lines(source, helper.scorers, _WORKERS))
    return None if scored.output == block.read(path) else scored.output, scored.changes


def close(settings: bytes) -> None:
    """Close the environments' shared resources."""
    helper = _helper(settings)
    helper.runner.run(helper.stack.aclose())


@functools.cache
def _helper(settings: bytes) -> _Helper:
    return _Helper(pickle.loads(settings))
