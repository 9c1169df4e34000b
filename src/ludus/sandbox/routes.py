"""A way from a sandbox to one port of this machine: what connects to `127.0.0.1:PORT` inside is connected to ours.

The bytes are copied as they come and are never looked at, so there is no request that could name another address.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress

from ludus.runtime.threads import in_thread
from ludus.sandbox.listening import listen_inside, pump

#: Connections of one route at a time. Further ones wait in the queue of the socket: they cost this process nothing.
CONNECTIONS = 64

#: `SO_LINGER` for a socket that throws away what it has not sent when it closes.
_DISCARD = struct.pack("ii", 1, 0)


class PortRoute:
    """The route of one sandbox to one port."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._free = asyncio.Semaphore(CONNECTIONS)
        self._accepting: asyncio.Task[None] | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def open(self, pid: int) -> None:
        """Listen in the network of a process."""
        listener = await in_thread(listen_inside, pid, self._port)
        listener.setblocking(False)
        self._accepting = asyncio.create_task(self._accept(listener))

    async def close(self) -> None:
        """Stop listening and cut all connections."""
        tasks = [*([self._accepting] if self._accepting is not None else []), *self._connections]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with listener:
            while True:
                await self._free.acquire()
                try:
                    connection, _ = await loop.sock_accept(listener)
                except OSError:  # it was reset before it was accepted, or this process has too many open files
                    self._free.release()
                    await asyncio.sleep(0.05)
                    continue
                task = asyncio.create_task(self._serve(connection))
                self._connections.add(task)
                task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._connections.discard(task)
        self._free.release()

    async def _serve(self, connection: socket.socket) -> None:
        reader, writer = await asyncio.open_connection(sock=connection)  # closes the socket if it fails
        try:
            their_reader, their_writer = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            writer.transport.abort()
            return
        except BaseException:
            writer.transport.abort()
            raise
        try:
            await asyncio.gather(pump(reader, their_writer), pump(their_reader, writer))
        except OSError:
            pass
        except BaseException:
            _cut(writer, their_writer)
            raise
        for side in (writer, their_writer):
            side.close()


def _cut(inside: asyncio.StreamWriter, outside: asyncio.StreamWriter) -> None:
    """End a connection at once. `close` would keep it open until the program has read what was sent."""
    with suppress(OSError, AttributeError):  # uvloop has no socket (None) for a connection that is closed already
        inside.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _DISCARD)
    inside.transport.abort()
    outside.transport.abort()
