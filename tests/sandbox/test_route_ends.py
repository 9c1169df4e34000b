"""Routes on uvloop, the event loop of collections: no connection outlives its route, however its program ended.

Warnings are errors in tests. So closing an event loop with an open connection raises `Device or resource busy`.
"""

from __future__ import annotations

import asyncio

import pytest
from sandboxes import needs, opened

from ludus.runtime.running import run

CONNECT = "import socket, sys; connection = socket.create_connection(('127.0.0.1', int(sys.argv[1])))"


@needs("bubblewrap")
@pytest.mark.parametrize("turns", range(7))
def test_a_route_that_closes_just_after_its_program_is_found_gone_ends_both_sides(turns: int) -> None:
    """The second message to a program that has ended resets its side. Some turns of the loop later both are closed."""

    async def main() -> None:
        accepted: list[asyncio.StreamWriter] = []
        ended = asyncio.Event()

        async def hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            accepted.append(writer)
            await reader.read()
            ended.set()

        async with opened("bubblewrap") as sandbox:
            server = await asyncio.start_server(hold, "127.0.0.1", 0)
            port = server.sockets[0].getsockname()[1]
            await sandbox.route(port)
            assert (await sandbox.python(CONNECT, argv=[str(port)])).ok
            await ended.wait()
            accepted[0].write(b"x")
            await asyncio.sleep(0.05)
            accepted[0].write(b"x")
            for _ in range(turns):
                await asyncio.sleep(0)
            await sandbox.close_routes()
            accepted[0].close()
            server.close()

    run(main())
