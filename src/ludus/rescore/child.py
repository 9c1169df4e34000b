"""The part of scoring again that other processes do: whole blocks of lines, answered as the first process would."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ludus.rescore.ordered import answer_all
from ludus.rescore.scoring import Scorers
from ludus.store.lines import Block, Source

_WORKERS = 16


@dataclass(frozen=True)
class Order:
    """What is asked of every block."""

    environment: str | None
    settings: dict[str, Any]
    sign: bool
    stale: bool


class _Session:
    """An event loop that lives from block to block, with what the environment shares."""

    def __init__(self, order: Order) -> None:
        gc.freeze()
        gc.set_threshold(50000, 20, 100)  # a block is many live objects and few cycles
        self.runner = asyncio.Runner()
        self.stack = contextlib.AsyncExitStack()
        self.scorers = self.runner.run(self._open(order))

    async def _open(self, order: Order) -> Scorers:
        scorers = Scorers(self.stack, order.settings, sign=order.sign, stale=order.stale)
        if order.environment is not None:
            await scorers.use(order.environment)
        return scorers


def prepare(order: bytes) -> None:
    """Import what the environment needs and open what it shares, before anybody waits for a block."""
    _session(order)


def answer_block(order: bytes, path: Path, block: Block) -> tuple[bytes | None, Any]:
    """The lines that answer a block of a file (None where they are the same) and what changed. `order` is pickled."""
    session = _session(order)
    with Source(path, block) as source:
        part = session.runner.run(answer_all(source, session.scorers, _WORKERS))
    return None if part.line == block.read(path) else part.line, part.changes


def close(order: bytes) -> None:
    """Let go of what the environment shares."""
    session = _session(order)
    session.runner.run(session.stack.aclose())


@functools.cache
def _session(order: bytes) -> _Session:
    return _Session(pickle.loads(order))
