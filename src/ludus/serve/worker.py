"""A worker process: one site on sockets that it inherited.

It is handed its part as one line of JSON on stdin and tells how far it is in lines of JSON on what was its stdout;
whatever an environment prints goes to stderr. When stdin ends, its supervisor is gone, however that ended, and so is
the worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import orjson

from ludus.errors import UserError
from ludus.serve.plan import Plan
from ludus.serve.site import Site


def main() -> None:
    """Serve until told to stop."""
    part = orjson.loads(sys.stdin.buffer.readline())
    supervisor = os.dup(1)
    os.dup2(2, 1)
    run(_serve(part, partial(_say, supervisor)))


def run(work: Any) -> Any:
    """Run a coroutine on uvloop where it is installed, with as many open files as this system allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    try:
        import uvloop
    except ImportError:
        return asyncio.run(work)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work)


def _say(pipe: int, **told: Any) -> None:
    """Tell the supervisor something."""
    with contextlib.suppress(OSError):
        os.write(pipe, orjson.dumps(told) + b"\n")


async def _serve(part: dict[str, Any], say: Callable[..., None]) -> None:
    site = Site(Plan.model_validate(part["plan"]), part["worker"], part["peers"])
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    lifeline = asyncio.create_task(_until_eof(stopping))
    telling = asyncio.create_task(_tell(site, say))
    try:
        await site.start({name: socket.socket(fileno=number) for name, number in part["sockets"].items()})
        telling.cancel()
        say(ready=True)
        await stopping.wait()
    except UserError as error:
        say(error=str(error))
        sys.exit(2)
    finally:
        lifeline.cancel()
        telling.cancel()
        await site.stop()


async def _until_eof(stopping: asyncio.Event) -> None:
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while await reader.read(1024):
        pass
    stopping.set()


async def _tell(site: Site, say: Callable[..., None]) -> None:
    """What it waits for, whenever that changes."""
    told = ""
    while True:
        if site.waiting_for != told:
            told = site.waiting_for
            say(waiting_for=told)
        await asyncio.sleep(0.05)


if __name__ == "__main__":
    main()
