"""Frames between a collection and its workers: a head of JSON, and a body of bytes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from typing import Any

import orjson

from ludus.runtime.encoding import encode
from ludus.runtime.frames import HEADER, frame_start

#: The read buffer of a connection.
READ_AHEAD = 1 << 20


def frame(head: Any, body: Collection[bytes] = ()) -> bytes:
    """The bytes of a frame. The parts of the body are joined."""
    return b"".join((frame_start(encode(head), sum(map(len, body))), *body))


class Frames:
    """The frames of a connection until it ends. Iterating may be cancelled and resumed."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._header = self._head = b""

    def __aiter__(self) -> AsyncIterator[tuple[Any, memoryview]]:
        return self

    async def __anext__(self) -> tuple[Any, memoryview]:
        """The next frame. A cancel loses no bytes."""
        read = self._reader.readexactly
        try:
            self._header = self._header or await read(HEADER.size)
            head_size, body_size = HEADER.unpack(self._header)
            self._head = self._head or await read(head_size)
            body = await read(body_size)
        except (asyncio.IncompleteReadError, ConnectionError):
            raise StopAsyncIteration from None
        head, self._header, self._head = self._head, b"", b""
        return orjson.loads(head), memoryview(body)


class BodyParts:
    """Reads the parts of a body in order, by their lengths."""

    def __init__(self, body: memoryview) -> None:
        self._body, self._offset = body, 0

    def next(self, length: int) -> memoryview:
        """The next part."""
        start = self._offset
        self._offset += length
        return self._body[start : self._offset]
