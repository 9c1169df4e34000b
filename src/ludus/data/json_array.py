"""The elements of a JSON array, cut out of a stream of bytes without reading the whole array.

The scanner knows only strings, brackets and commas. It yields the bytes between two commas as they are; parsing an
element finds all other mistakes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

_STRUCTURE = re.compile(rb'["{}\[\],]')
_IN_TEXT = re.compile(rb'["\\]')
_OPENING, _CLOSING = b"{[", b"}]"


class BrokenArray(Exception):
    """The array is not JSON: what is wrong."""


def array_elements(chunks: Iterable[bytes], max_size: int) -> Iterator[bytes]:
    """The bytes of each element of the array that the chunks hold. An element over `max_size` bytes is refused."""
    splitter = _Splitter(max_size)
    for chunk in chunks:
        yield from splitter.feed(chunk)
    splitter.finish()


class _Splitter:
    def __init__(self, max_size: int) -> None:
        self._max_size = max_size
        self._buffer = bytearray()  # the current element, from its first byte on
        self._at = 0  # bytes scanned so far
        self._depth = 0  # of brackets: 1 between the elements, -1 after the array
        self._in_text = False
        self._elements = 0

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The elements that end in this chunk."""
        self._buffer += chunk
        start = 0
        while (end := self._next_end()) is not None:
            yield from self._element(start, end, last=self._depth == -1)
            start = end + 1
        del self._buffer[:start]
        self._at -= start
        if self._depth == -1:
            if self._buffer.strip():
                raise BrokenArray("there is more text after the end of the JSON array")
            self._buffer.clear()
            self._at = 0
        elif len(self._buffer) > self._max_size:
            raise BrokenArray(f"row {self._elements + 1} is longer than {self._max_size:,} bytes")

    def finish(self) -> None:
        """Refuse an array that has no end."""
        if self._depth != -1:
            raise BrokenArray(f"the JSON array ends in the middle of row {self._elements + 1}")

    def _element(self, start: int, end: int, last: bool) -> Iterator[bytes]:
        element = bytes(self._buffer[start:end]).strip()
        if not element:
            if last and self._elements == 0:
                return
            raise BrokenArray(f"row {self._elements + 1} is empty: there is a comma too many")
        self._elements += 1
        yield element

    def _next_end(self) -> int | None:
        """The place of the next comma between two elements, or of the array's end; None if it is not here yet."""
        buffer = self._buffer
        if self._depth == -1:
            return None
        while self._at < len(buffer):
            match = (_IN_TEXT if self._in_text else _STRUCTURE).search(buffer, self._at)
            if match is None:
                self._at = len(buffer)
                return None
            place, what = match.start(), buffer[match.start()]
            self._at = place + 1
            if self._in_text:
                if what == ord("\\"):
                    self._at += 1  # skip the escaped character, even if the next chunk holds it
                else:
                    self._in_text = False
            elif what == ord('"'):
                self._in_text = True
            elif what in _OPENING:
                self._depth += 1
                if self._depth == 1:
                    del buffer[: self._at]
                    self._at = 0
            elif what in _CLOSING:
                self._depth -= 1
                if self._depth == 0:
                    if what != ord("]"):
                        raise BrokenArray(f"a bracket does not match in row {self._elements + 1}")
                    self._depth = -1
                    return place
            elif self._depth == 1:
                return place
        return None
