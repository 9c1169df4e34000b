"""Frames between a collection and its workers: a head of JSON, and a body of bytes.

A frame starts with the lengths of both, four and eight bytes. A frame that ends early, because the sender died, is
dropped.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

import orjson

from ludus.runtime.encoding import encode

_HEAD_BYTES, _BODY_BYTES = 4, 8

#: The read buffer of a connection.
READ_AHEAD = 1 << 20


def frame(head: Any, body: Iterable[bytes] = ()) -> bytes:
    """The bytes of a frame. The parts of the body are joined."""
    text, data = encode(head), b"".join(body)
    return b"".join((len(text).to_bytes(_HEAD_BYTES, "big"), len(data).to_bytes(_BODY_BYTES, "big"), text, data))


class Frames:
    """The frames of a connection until it ends. Iterating may be cancelled and resumed."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._lengths = self._head = b""

    def __aiter__(self) -> AsyncIterator[tuple[Any, memoryview]]:
        return self

    async def __anext__(self) -> tuple[Any, memoryview]:
        """The next frame. A cancel loses no bytes."""
        read = self._reader.readexactly
        try:
            self._lengths = self._lengths or await read(_HEAD_BYTES + _BODY_BYTES)
            lengths = self._lengths
            self._head = self._head or await read(int.from_bytes(lengths[:_HEAD_BYTES], "big"))
            body = await read(int.from_bytes(lengths[_HEAD_BYTES:], "big"))
        except (asyncio.IncompleteReadError, ConnectionError):
            raise StopAsyncIteration from None
        head, self._lengths, self._head = self._head, b"", b""
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
