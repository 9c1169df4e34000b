"""A worker process: one site on sockets that it inherited.

The worker reads its assignment as one line of JSON from stdin, and reports its progress as lines of JSON on its
original stdout. The environment's own prints go to stderr. The worker stops when stdin ends: its supervisor is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import orjson

from ludus.errors import UserError
from ludus.runtime import running
from ludus.serve.forwarding import UnixPeers
from ludus.serve.plan import Plan
from ludus.serve.site import Site


def main() -> None:
    """Serve until SIGINT, SIGTERM or the end of stdin."""
    assignment = orjson.loads(sys.stdin.buffer.readline())
    supervisor = os.dup(1)
    os.dup2(2, 1)
    run(_serve(assignment, partial(_report, supervisor)))


def run(work: Any) -> Any:
    """Run a coroutine with as many open files as the system allows."""
    running.raise_file_limit()
    return running.run(work)


def _report(pipe: int, **message: Any) -> None:
    """Send a message to the supervisor."""
    with contextlib.suppress(OSError):
        os.write(pipe, orjson.dumps(message) + b"\n")


async def _serve(assignment: dict[str, Any], report: Callable[..., None]) -> None:
    site = Site(Plan.model_validate(assignment["plan"]), assignment["worker"], UnixPeers(assignment["peers"]))
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    stdin = asyncio.create_task(_stop_at_eof(stopping))
    progress = asyncio.create_task(_report_progress(site, report))
    try:
        await site.start({name: socket.socket(fileno=number) for name, number in assignment["sockets"].items()})
        progress.cancel()
        report(ready=True)
        await stopping.wait()
    except UserError as error:
        report(error=str(error))
        sys.exit(2)
    finally:
        stdin.cancel()
        progress.cancel()
        await site.stop()


async def _stop_at_eof(stopping: asyncio.Event) -> None:
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while await reader.read(1024):
        pass
    stopping.set()


async def _report_progress(site: Site, report: Callable[..., None]) -> None:
    """Report what the site waits for, whenever that changes."""
    reported = ""
    while True:
        if site.waiting_for != reported:
            reported = site.waiting_for
            report(waiting_for=reported)
        await asyncio.sleep(0.05)


if __name__ == "__main__":
    main()
