"""A worker process: one site on sockets that it inherited.

It is handed its part as one line of JSON on stdin and tells how far it is in lines of JSON on stdout. When stdin ends,
its supervisor is gone, however that ended, and so is the worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import signal
import socket
import sys
from typing import Any

import orjson

from ludus.errors import UserError
from ludus.serve.plan import Plan
from ludus.serve.site import Site


def main() -> None:
    """Serve until told to stop."""
    part = orjson.loads(sys.stdin.buffer.readline())
    run(_serve(part))


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


async def _serve(part: dict[str, Any]) -> None:
    site = Site(Plan.model_validate(part["plan"]), part["worker"], part["peers"])
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    lifeline = asyncio.create_task(_until_eof(stopping))
    telling = asyncio.create_task(_tell(site))
    try:
        await site.start({name: socket.socket(fileno=number) for name, number in part["sockets"].items()})
        telling.cancel()
        _say({"ready": True})
        await stopping.wait()
    except UserError as error:
        _say({"error": str(error)})
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


async def _tell(site: Site) -> None:
    """What it waits for, whenever that changes."""
    told = ""
    while True:
        if site.waiting_for != told:
            told = site.waiting_for
            _say({"waiting_for": told})
        await asyncio.sleep(0.05)


def _say(told: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):
        sys.stdout.buffer.write(orjson.dumps(told) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
