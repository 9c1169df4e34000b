"""SIGTERM stops a command as cleanly as Ctrl-C does."""

from __future__ import annotations

import asyncio
import contextlib
import signal


def cancel_on_sigterm() -> None:
    """Have SIGTERM cancel the running task; where a system knows no such signals, nothing is done."""
    task = asyncio.current_task()
    assert task is not None
    with contextlib.suppress(NotImplementedError):  # what asyncio raises on Windows
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
