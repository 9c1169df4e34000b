"""Stockfish as opponent and judge: a few processes, shared by all rollouts of a worker.

A search stops after a number of nodes, on one thread and with an empty hash table. So the same position gets the same
move and the same score on every machine, whatever other rollouts play.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

from ludus import Failure
from ludus.errors import UserError
from ludus_lab.needs import program, require

#: The longest that one search may take before it counts as a failure of the engine, in seconds.
PATIENCE = 60.0


@dataclass(frozen=True)
class Judgement:
    """The engine's move in a position, and the score that the side to move can expect: 1 is a win, 0 a loss."""

    move: Any
    expected: float


class Engines:
    """Searches positions, as many at once as there are processes."""

    def __init__(self, engines: list[Any]) -> None:
        self._idle: asyncio.Queue[Any] = asyncio.Queue()
        for engine in engines:
            self._idle.put_nowait(engine)

    async def search(self, board: Any, nodes: int) -> Judgement:
        """The best move of a position that is not over, and its expected score."""
        import chess.engine

        engine = await self._idle.get()
        try:
            limit, fresh = chess.engine.Limit(nodes=nodes), object()  # a new game empties the hash table
            searching = engine.play(board, limit, game=fresh, info=chess.engine.INFO_SCORE)
            found = await asyncio.wait_for(searching, PATIENCE)
        except (chess.engine.EngineError, TimeoutError) as error:
            self._idle.put_nowait(await _replaced(engine))
            raise Failure("engine", f"stockfish failed in {board.fen()}: {error or 'no move in time'}") from error
        except BaseException:
            self._idle.put_nowait(await _replaced(engine))  # cancelled in the middle of a search
            raise
        self._idle.put_nowait(engine)
        score = found.info["score"].relative
        return Judgement(found.move, float(score.wdl(model="sf15").expectation()))

    async def close(self) -> None:
        """End all processes."""
        while not self._idle.empty():
            await _end(self._idle.get_nowait())


@asynccontextmanager
async def engines(count: int | None) -> AsyncIterator[Engines]:
    """Start `count` processes, by default one for each core."""
    require("ludus_lab.chess")
    shared = Engines([await _start() for _ in range(count or os.cpu_count() or 1)])
    try:
        yield shared
    finally:
        await shared.close()


async def _start() -> Any:
    import chess.engine

    path = program("stockfish")
    assert path is not None
    try:
        _, engine = await asyncio.wait_for(chess.engine.popen_uci(path), PATIENCE)
        await engine.configure({"Threads": 1, "Hash": 16})
    except (chess.engine.EngineError, OSError, TimeoutError) as error:
        raise UserError(f"{path} does not start: {error}", "Install it with: apt-get install stockfish") from error
    return engine


async def _replaced(engine: Any) -> Any:
    await _end(engine)
    return await _start()


async def _end(engine: Any) -> None:
    with suppress(Exception):
        await asyncio.wait_for(engine.quit(), 2)
    with suppress(ProcessLookupError):
        engine.transport.kill()
    engine.transport.close()
