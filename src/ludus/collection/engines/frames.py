"""Frames between a collection and its workers: a head of JSON, and a body of bytes.

A frame starts with the lengths of both, four and eight bytes. A frame that ends early, because the sender died, is as
if it had never been sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

import orjson

from ludus.runtime.encoding import encode

_HEAD_BYTES, _BODY_BYTES = 4, 8

#: How much a reader takes in before it has read a frame.
READ_AHEAD = 1 << 20


def frame(head: Any, body: Iterable[bytes] = ()) -> bytes:
    """The bytes of a frame. The parts of the body are joined."""
    text, data = encode(head), b"".join(body)
    return b"".join((len(text).to_bytes(_HEAD_BYTES, "big"), len(data).to_bytes(_BODY_BYTES, "big"), text, data))


class Frames:
    """The frames that a reader receives, until the connection ends. Iterating may be cancelled and begun again."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._lengths = self._head = b""

    def __aiter__(self) -> AsyncIterator[tuple[Any, memoryview]]:
        return self

    async def __anext__(self) -> tuple[Any, memoryview]:
        """The next frame. What was read of it before a cancel is kept."""
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
