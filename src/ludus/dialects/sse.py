"""Server-sent events, as bytes and as values.

    parser = EventParser()
    async for chunk in answer.content.iter_any():
        for value in values(parser.feed(chunk)):
            stream.add(value)

What adds the values of a stream up to a whole answer, and takes a whole answer apart into a stream, has a file for each
dialect: `chat_stream`, `responses_stream`, `messages_stream`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import orjson

from ludus.errors import Failure
from ludus.runtime.encoding import encode

DONE = "[DONE]"

_LINE_END = re.compile(rb"\r\n|\r|\n")
_MARK = b"\xef\xbb\xbf"
_LARGEST_EVENT = 256 * 1024 * 1024


class Event(NamedTuple):
    """One event: its name (`message` where the server gave none), its data, and the last id the server told."""

    name: str
    data: str
    id: str = ""


class EventParser:
    """Turns the bytes of a stream, cut anywhere, into events.

    An event that grows past `largest` bytes is a `bad_response`, so that a broken server cannot fill the memory.
    """

    __slots__ = ("_after_return", "_data", "_first", "_id", "_largest", "_line", "_name", "_size")

    def __init__(self, largest: int = _LARGEST_EVENT) -> None:
        self._largest = largest
        self._line: list[bytes] = []  # the pieces of a line that has not ended
        self._data: list[str] = []
        self._name = ""
        self._id = ""
        self._size = 0
        self._first = True
        self._after_return = False

    def feed(self, data: bytes) -> list[Event]:
        """The events that these bytes complete."""
        if not data:
            return []
        ends_in_return = data.endswith(b"\r")
        if self._after_return and data.startswith(b"\n"):  # the other half of a line end that was cut in two
            data = data[1:]
        self._after_return = ends_in_return
        *lines, rest = _LINE_END.split(data)
        events = []
        for line in lines:
            self._size += len(line)
            if self._line:
                line = b"".join([*self._line, line])
                self._line = []
            event = self._take(line)
            if event is not None:
                events.append(event)
        if rest:
            self._line.append(rest)
            self._size += len(rest)
        if self._size > self._largest:
            raise Failure("bad_response", f"a server-sent event is larger than {self._largest} bytes")
        return events

    def finish(self) -> list[Event]:
        """The event that a server left without its closing blank line, if there is one."""
        return self.feed(b"\n\n")

    def _take(self, line: bytes) -> Event | None:
        if self._first:
            self._first = False
            line = line.removeprefix(_MARK)
        if not line:
            return self._dispatch()
        field, _, value = line.partition(b":")
        text = value.removeprefix(b" ").decode("utf-8", "replace")
        if field == b"data":
            self._data.append(text)
        elif field == b"event":
            self._name = text
        elif field == b"id" and "\0" not in text:
            self._id = text
        return None

    def _dispatch(self) -> Event | None:
        event = Event(self._name or "message", "\n".join(self._data), self._id) if self._data else None
        self._data = []
        self._name = ""
        self._size = 0
        return event


def values(events: Iterable[Event]) -> Iterator[Any]:
    """The JSON values that events carry, without the mark that ends a chat stream."""
    for event in events:
        if event.data == DONE:
            continue
        try:
            yield orjson.loads(event.data)
        except orjson.JSONDecodeError as error:
            raise Failure("bad_response", f"the stream holds no JSON: {event.data[:100]}") from error


def encode_event(value: Any, name: str | None = None) -> bytes:
    """An event as bytes. A string, such as `DONE`, is sent as it is; anything else as JSON."""
    text = value.encode("utf-8", "replace") if isinstance(value, str) else encode(value)
    lines = b"".join(b"data: " + line + b"\n" for line in _LINE_END.split(text))
    return (f"event: {name}\n".encode() if name else b"") + lines + b"\n"
