"""The memory of a session: many sessions are opened and played, and held just before they are verified."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import tracemalloc
from pathlib import Path
from typing import Any

from ludus.collection.player import Player, Players
from ludus.environment import Environment
from ludus.episode import Acting, Episode
from ludus.model import Model
from ludus.rollout import Job

#: Sessions that are not held by then have failed, or wait for something that the held ones use.
HOLD_SECONDS = 30.0


class _Holding:
    """Plays an episode with its agent and holds it until `release`."""

    def __init__(self, agent: Acting) -> None:
        self._agent = agent
        self.held = 0
        self.changed = asyncio.Event()
        self.release = asyncio.Event()

    async def act(self, episode: Episode) -> str:
        stop_reason = await self._agent.act(episode)
        self.held += 1
        self.changed.set()
        await self.release.wait()
        self.held -= 1
        return stop_reason


async def memory_per_session(environment: Environment, model: Model, jobs: list[Job]) -> dict[str, Any]:
    """The memory that grows with each session in flight: Python's objects, and the process as a whole.

    Objects that Python does not allocate and child processes are not in the first number; the second one is rough,
    because the process may have had free memory.
    """
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(model)
        player = await Players(stack, model).open(environment)
        await _play(player, jobs[:1])  # warm up: the first session loads modules
        return await _play(player, jobs)


async def _play(player: Player, jobs: list[Job]) -> dict[str, Any]:
    holding = _Holding(player.agent)
    gc.collect()
    resident = _resident_bytes()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        sessions = [asyncio.create_task(player.play(player.episode(job), holding)) for job in jobs]
        for session in sessions:
            session.add_done_callback(lambda _: holding.changed.set())
        await _until_all_held(holding, sessions)
        gc.collect()
        grown, held = tracemalloc.get_traced_memory()[0] - before, holding.held
        now = _resident_bytes()
        holding.release.set()
        await asyncio.gather(*sessions, return_exceptions=True)
    finally:
        tracemalloc.stop()
    rough = now - resident if now is not None and resident is not None else None
    return {
        "sessions": held,
        "bytes_per_session": round(grown / held) if held else None,
        "resident_bytes_per_session": round(rough / held) if held and rough is not None else None,
    }


async def _until_all_held(holding: _Holding, sessions: list[asyncio.Task[Any]]) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(HOLD_SECONDS):
            while holding.held + sum(session.done() for session in sessions) < len(sessions):
                holding.changed.clear()
                await holding.changed.wait()


def _resident_bytes() -> int | None:
    """The memory of this process; None on systems that do not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None
