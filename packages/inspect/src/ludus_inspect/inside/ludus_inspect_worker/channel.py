"""Messages between the worker and the process that started it: a length of four bytes, then JSON.

Both ends import this file. A request has an `id`, and its answer has the same: `value`, or `error` with a text.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import struct
from collections.abc import Awaitable, Callable
from typing import Any

_LENGTH = struct.Struct("!I")

Message = dict[str, Any]


class RequestRefused(Exception):
    """The other end could not do what was asked. Its text is for people."""


class WorkerChannel:
    """One end of a socket. `answer` gets the requests of the other end, `hear` its notes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._answering: dict[int, asyncio.Task[None]] = {}

    @classmethod
    async def over(cls, descriptor: int) -> WorkerChannel:
        """A channel over the socket of a file descriptor."""
        import socket

        return cls(*await asyncio.open_connection(sock=socket.socket(fileno=descriptor)))

    def note(self, **fields: Any) -> None:
        """Send a message that nobody answers."""
        content = json.dumps(fields).encode()
        self._writer.write(_LENGTH.pack(len(content)) + content)

    async def ask(self, **fields: Any) -> Any:
        """Send a request and wait for its answer. Raises `RequestRefused`."""
        number = next(self._numbers)
        self._waiting[number] = answer = asyncio.get_running_loop().create_future()
        self.note(id=number, **fields)
        try:
            await self._writer.drain()
            return await answer
        except asyncio.CancelledError:
            self.note(forget=number)
            raise
        finally:
            self._waiting.pop(number, None)

    async def flush(self) -> None:
        """Wait until the other end has read most of what was sent."""
        await self._writer.drain()

    async def receive(self) -> Message | None:
        """The next message; None at the end of the socket."""
        try:
            (size,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
            message: Message = json.loads(await self._reader.readexactly(size))
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        return message

    async def serve(self, answer: Callable[[Message], Awaitable[Any]], hear: Callable[[Message], None]) -> None:
        """Read until the socket ends."""
        while (message := await self.receive()) is not None:
            if "reply" in message:
                self._settle(message)
            elif "forget" in message:
                if (task := self._answering.get(message["forget"])) is not None:
                    task.cancel()
            elif "id" in message:
                number = message["id"]
                task = asyncio.create_task(self._answer(number, answer(message)))
                self._answering[number] = task
                task.add_done_callback(lambda _, number=number: self._answering.pop(number, None))  # type: ignore[misc]
            else:
                hear(message)
        for waiting in list(self._waiting.values()):
            if not waiting.done():
                waiting.set_exception(RequestRefused("the other process has ended"))

    async def close(self) -> None:
        """Close the socket, and cancel what is being answered."""
        for task in list(self._answering.values()):
            task.cancel()
        await asyncio.gather(*self._answering.values(), return_exceptions=True)
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()  # all is sent

    def _settle(self, message: Message) -> None:
        waiting = self._waiting.get(message["reply"])
        if waiting is None or waiting.done():
            return
        if "error" in message:
            waiting.set_exception(RequestRefused(message["error"]))
        else:
            waiting.set_result(message.get("value"))

    async def _answer(self, number: int, work: Awaitable[Any]) -> None:
        try:
            self.note(reply=number, value=await work)
        except Exception as error:
            self.note(reply=number, error=str(error) or type(error).__name__)
