"""How tests wait: for an event, as long as a busy machine takes, and not for ever."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable

import psutil

#: Seconds after which an event will not come any more. No test is right or wrong because of this number.
CEILING = 900.0


def until(happened: Callable[[], object], every: float = 0.01) -> None:
    """Block until something has happened."""
    deadline = time.monotonic() + CEILING
    while not happened():
        assert time.monotonic() < deadline, f"it did not happen within {CEILING:g} s"
        time.sleep(every)


async def until_async(happened: Callable[[], object], every: float = 0.01) -> None:
    """Wait until something has happened, while the event loop turns."""
    deadline = time.monotonic() + CEILING
    while not happened():
        assert time.monotonic() < deadline, f"it did not happen within {CEILING:g} s"
        await asyncio.sleep(every)


def until_gone(*pids: int) -> None:
    """Block until processes have ended; whether anybody has buried them does not matter."""
    until(lambda: not any(map(is_running, pids)))


def is_running(pid: int) -> bool:
    """Whether a process runs. One that has ended and was not collected yet does not."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def without_progress(stderr: str) -> str:
    """What a collection said, less the line about progress that a slow one adds every few seconds."""
    return re.sub(r"^\d+/\d+ done, .*\n", "", stderr, flags=re.MULTILINE)
