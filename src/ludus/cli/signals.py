"""SIGTERM stops a command cleanly, like Ctrl-C."""

from __future__ import annotations

import contextlib
import signal

#: The exit code after Ctrl-C.
INTERRUPTED = 130


def interrupt_on_sigterm() -> None:
    """Raise KeyboardInterrupt on SIGTERM, for a command without an event loop."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def cancel_on_sigterm() -> None:
    """Cancel the running task on SIGTERM. Does nothing on Windows."""
    import asyncio

    task = asyncio.current_task()
    assert task is not None
    with contextlib.suppress(NotImplementedError):  # raised on Windows
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
