"""Server-sent events: parse bytes into events, and encode values as events.

    parser = EventParser()
    async for chunk in answer.content.iter_any():
        for value in values(parser.feed(chunk)):
            stream.add(value)

`chat_stream` and `responses_stream` join the values to an answer, and split an answer into values; `messages_stream`
only splits.
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
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_LARGEST_EVENT = 256 * 1024 * 1024


class ServerSentEvent(NamedTuple):
    """One event: its name (`message` by default), its data, and the last id that the server sent."""

    name: str
    data: str
    id: str = ""


class EventParser:
    """Parses the bytes of a stream, in chunks of any size, into events.

    An event larger than `largest` bytes is a `bad_response`, so that a broken server cannot fill the memory.
    """

    __slots__ = ("_after_return", "_data", "_first_line", "_id", "_largest", "_line", "_name", "_size")

    def __init__(self, largest: int = _LARGEST_EVENT) -> None:
        self._largest = largest
        self._line: list[bytes] = []  # the pieces of an unfinished line
        self._data: list[str] = []
        self._name = ""
        self._id = ""
        self._size = 0
        self._first_line = True
        self._after_return = False

    def feed(self, data: bytes) -> list[ServerSentEvent]:
        """Add bytes and return the events that they complete."""
        if not data:
            return []
        ends_in_return = data.endswith(b"\r")
        if self._after_return and data.startswith(b"\n"):  # the second byte of a split \r\n
            data = data[1:]
        self._after_return = ends_in_return
        *lines, rest = _LINE_END.split(data)
        events = []
        for line in lines:
            self._size += len(line)
            if self._line:
                line = b"".join([*self._line, line])
                self._line = []
            event = self._add_line(line)
            if event is not None:
                events.append(event)
        if rest:
            self._line.append(rest)
            self._size += len(rest)
        if self._size > self._largest:
            raise Failure("bad_response", f"a server-sent event is larger than {self._largest} bytes")
        return events

    def finish(self) -> list[ServerSentEvent]:
        """Return the last event if the stream ended without its blank line."""
        return self.feed(b"\n\n")

    def _add_line(self, line: bytes) -> ServerSentEvent | None:
        if self._first_line:
            self._first_line = False
            line = line.removeprefix(_BYTE_ORDER_MARK)
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

    def _dispatch(self) -> ServerSentEvent | None:
        event = ServerSentEvent(self._name or "message", "\n".join(self._data), self._id) if self._data else None
        self._data = []
        self._name = ""
        self._size = 0
        return event


def values(events: Iterable[ServerSentEvent]) -> Iterator[Any]:
    """The JSON values of events, without the `[DONE]` that ends a chat stream."""
    for event in events:
        if event.data == DONE:
            continue
        try:
            yield orjson.loads(event.data)
        except orjson.JSONDecodeError as error:
            raise Failure("bad_response", f"a server-sent event is not JSON: {event.data[:100]}") from error


def encode_event(value: Any, name: str | None = None) -> bytes:
    """Encode an event. A string, such as `DONE`, is sent unchanged; any other value as JSON."""
    text = value.encode("utf-8", "replace") if isinstance(value, str) else encode(value)
    lines = b"".join(b"data: " + line + b"\n" for line in _LINE_END.split(text))
    return (f"event: {name}\n".encode() if name else b"") + lines + b"\n"
