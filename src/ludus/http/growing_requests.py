"""Requests that repeat an earlier one and add to it: what was read before is neither parsed nor converted again.

A program sends its whole conversation with every call. A body is cut into a head, the messages of its conversation, and
a tail. The messages that an earlier body begins with, byte for byte, were converted then. Every other piece is parsed
by itself, in brackets that only its place in the body can close: a cut in the wrong place is an error of the parser,
and never another request. A body that cannot be cut is read as a whole.
"""

from __future__ import annotations

import re
import secrets
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from ludus.dialects.errors import Dialect
from ludus.dialects.histories import HISTORIES, History
from ludus.errors import Failure
from ludus.http.messages import MAX_DEPTH, Refusal, is_shallow
from ludus.response import Item

Body = dict[str, Any]

#: The most conversations of a program that are remembered, and the most bytes of their requests.
CONVERSATIONS, KEPT_BYTES = 8, 16 << 20
#: The most lists and objects of a request: some MB of them would keep the event loop, and so all rollouts, for minutes.
BRACKETS = 1 << 18
#: A request that differs from an earlier one in this many of its last messages goes on with the same conversation.
_EDITED = 4

#: Short texts and anything else up to the next bracket or long text; the last text of them, and the bracket or quote.
#: Nothing is matched in a second way (`++`), so that hostile bytes take no longer than others.
_UP_TO_BRACKET = re.compile(rb'(?:[^"\[\]{}]++|("[^"\\]{0,64}+"))*+(["\[\]{}])')
_REST_OF_TEXT = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_BACKSLASH, _ESCAPED_QUOTES = ord("\\"), 1000
_SPACE = b" \t\r\n"
#: Stands for the messages in a head or a tail. No program knows it, so none can write it.
_MESSAGES = secrets.token_hex(16)
_MARK = orjson.dumps(_MESSAGES)


class _NotCutError(Exception):
    """The body has another form than requests usually have."""


@dataclass(slots=True)
class _Known:
    """An earlier request: its bytes up to the end of its last message, and what became of them."""

    dialect: Dialect
    seen: bytes
    start: int  # of the messages
    ends: list[int]  # of each message
    tail: bytes
    head_fields: Body
    fields: Body  # all but the messages
    request: Body  # what the fields became, without the items of the messages
    read: Callable[[Any], list[Item]]
    items: list[Item]
    counts: list[int]  # of items, up to each message

    def repeated(self, body: bytes) -> int:
        """The number of messages that a body begins with, too."""
        if body.startswith(self.seen):
            return len(self.ends)
        if not body.startswith(self.seen[: self.ends[0]]):
            return 0
        return bisect_left(self.ends, True, key=lambda end: not body.startswith(self.seen[:end]))


class GrowingRequests:
    """Reads the requests of one program."""

    def __init__(self) -> None:
        self._known: list[_Known] = []  # the last one is the latest

    def read(
        self,
        dialect: Dialect,
        body: bytes,
        convert: Callable[[Body], Body],
        read_items: Callable[[list[Any]], list[Any]],
    ) -> tuple[Body, Body] | None:
        """The fields of a request without its messages, and the Responses request that it is.

        `convert` makes that of a request, and `read_items` changes its items, each by itself. None for a request that
        cannot be cut, or is wrong.
        """
        if len(body) > BRACKETS and body.count(b"{") + body.count(b"[") > BRACKETS:
            raise Refusal(413, f"the body has more than {BRACKETS:,} lists and objects")
        history = HISTORIES[dialect]
        known, repeated = self._most_alike(dialect, body)
        if known is not None and not history.rewinds and repeated < len(known.ends):
            known, repeated = None, 0
        try:
            request = _read(dialect, history, body, known, repeated, convert, read_items)
        except (_NotCutError, orjson.JSONDecodeError, Failure, Refusal):
            return None
        if known is not None and repeated >= len(known.ends) - _EDITED:
            self._known.remove(known)
        self._remember(request)
        return request.fields, {**request.request, "input": [*request.request["input"], *request.items]}

    def _most_alike(self, dialect: Dialect, body: bytes) -> tuple[_Known | None, int]:
        best: _Known | None = None
        most = 0
        for known in reversed(self._known):
            if known.dialect == dialect and (repeated := known.repeated(body)) > most:
                best, most = known, repeated
                if repeated == len(known.ends):
                    break
        return best, most

    def _remember(self, request: _Known) -> None:
        known = self._known
        if request.ends:
            known.append(request)
        while len(known) > CONVERSATIONS or sum(len(one.seen) for one in known) > KEPT_BYTES:
            del known[0]


def _read(
    dialect: Dialect,
    history: History,
    body: bytes,
    known: _Known | None,
    repeated: int,
    convert: Callable[[Body], Body],
    read_items: Callable[[list[Any]], list[Any]],
) -> _Known:
    start = known.start if known is not None else _start_of_list(body, orjson.dumps(history.field))
    at = known.ends[repeated - 1] if known is not None else start
    spans, end = _spans(body, at, is_first=not repeated)
    tail = body[end:]
    if known is not None and known.tail == tail:
        head_fields, fields, request = known.head_fields, known.fields, known.request
    else:
        head_fields = known.head_fields if known is not None else _parsed(body[:start] + _MARK + b"]}", history)
        tail_fields = _parsed(b'{"%b":[%b%b' % (history.field.encode(), _MARK, tail), history)
        fields = {**head_fields, **tail_fields}
        request = convert({**fields, history.field: []})
    if known is not None:
        read, kept = known.read, known.counts[repeated - 1]
        items, counts, ends = known.items[:kept], known.counts[:repeated], known.ends[:repeated]
    else:
        read, items, counts, ends = history.reader(), [], [], []
    added: list[Item] = []
    for first, after in spans:
        added += read(orjson.loads(body[first:after]))
        counts.append(len(items) + len(added))
        ends.append(after)
    items += read_items(added)
    seen = body[: ends[-1]] if ends else b""
    return _Known(dialect, seen, start, ends, tail, head_fields, fields, request, read, items, counts)


def _start_of_list(body: bytes, field: bytes) -> int:
    """Where the list in a field of the body begins, after its bracket."""
    depth = 0
    for bracket, position, text in _brackets(body, 0):
        if bracket in b"]}":
            depth -= 1
        elif depth == 1 and bracket == b"[" and text == field:
            return position
        else:
            depth += 1
    raise _NotCutError


def _brackets(body: bytes, position: int) -> Iterator[tuple[bytes, int, bytes | None]]:
    """Each bracket outside of texts, the position after it, and the text before it, if that is short."""
    while (token := _UP_TO_BRACKET.match(body, position)) is not None:
        position = token.end()
        text, bracket = token.groups()
        if bracket == b'"':
            position = _end_of_text(body, position)
        else:
            yield bracket, position, text


def _end_of_text(body: bytes, position: int) -> int:
    """Where the text that begins before `position` ends. `find` is the fastest, unless many quotes are escaped."""
    for _ in range(_ESCAPED_QUOTES):
        quote = body.find(b'"', position)
        if quote < 0:
            raise _NotCutError
        if body[quote - 1] != _BACKSLASH:
            return quote + 1
        piece, position = body[position:quote], quote + 1
        if (len(piece) - len(piece.rstrip(b"\\"))) % 2 == 0:
            return position
    if (rest := _REST_OF_TEXT.match(body, position)) is None:
        raise _NotCutError
    return rest.end()


def _spans(body: bytes, begin: int, *, is_first: bool) -> tuple[list[tuple[int, int]], int]:
    """Where the messages from `begin` on begin and end, and where their list ends."""
    spans: list[tuple[int, int]] = []
    depth, start, end = 0, 0, begin
    for bracket, position, _ in _brackets(body, begin):
        if bracket in b"[{":
            if depth == 0:
                start = position - 1
                comma = b"" if is_first and not spans else b","
                if body[end:start].strip(_SPACE) != comma:
                    break
            depth += 1
            if depth > MAX_DEPTH - 2:
                break
        elif depth == 0:
            if body[end : position - 1].strip(_SPACE):
                break
            return spans, position - 1
        else:
            depth -= 1
            if depth == 0:
                end = position
                spans.append((start, end))
    raise _NotCutError


def _parsed(piece: bytes, history: History) -> Body:
    """The fields of a head or a tail, whose place of the messages the mark holds."""
    fields = orjson.loads(piece)
    if not isinstance(fields, dict) or fields.pop(history.field, None) != [_MESSAGES] or not is_shallow(fields, piece):
        raise _NotCutError
    return fields
