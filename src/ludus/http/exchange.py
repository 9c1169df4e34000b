"""One request to a server and its reply, in the words of ASGI: what the application receives and what it sends.

An application that knows our server saves ASGI's messages: `exchange_of(receive).take` is the body of a request that is
complete, and `exchange_of(send).reply` sends a whole reply. An application in between that passes on a `receive` or a
`send` of its own has no exchange, so it sees every message.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, Protocol

from ludus.http.channels import ANNOUNCED
from ludus.http.messages import Headers, Receive, Reply, Scope, Send

log = logging.getLogger("ludus.serve")

Application = Callable[[Scope, Receive, Send], Awaitable[None]]

#: A body that waits to be read is read from the socket up to this size.
READ_AHEAD_BYTES = 1 << 16
_LARGE_BODY = 1 << 16

_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}
_NO_BODY = (204, 304)
#: No name and no value of a header may hold one of these: a line break would begin another header.
_CONTROL_CHARACTERS = bytes(byte for byte in range(32) if byte != 9) + b"\x7f"
_FAILED: Headers = [
    (b"content-type", b"text/plain; charset=utf-8"),
    (b"content-length", b"21"),
    (b"connection", b"close"),
]


class _Connection(Protocol):
    """The connection of an exchange."""

    transport: asyncio.Transport
    writable: asyncio.Event | None

    def resume_reading(self) -> None:
        """Read on, after the application took the part of the body that had arrived."""

    def end(self, exchange: HttpExchange) -> None:
        """The reply is complete."""


class HttpExchange:
    """One request and its reply. The connection adds the body as it arrives; the application answers."""

    __slots__ = (
        "_body",
        "_changed",
        "_chunked",
        "_connection",
        "_head",
        "_left",
        "_started",
        "_unread",
        "announces",
        "awaits_continue",
        "disconnected",
        "ended",
        "keep_alive",
        "method",
        "task",
        "whole",
    )

    def __init__(self, connection: _Connection, method: str, keep_alive: bool, awaits_continue: bool) -> None:
        self.method = method
        self.keep_alive = keep_alive
        self.awaits_continue = awaits_continue  #: the client sends the body only after an interim reply
        self.announces = False  #: the reply tells the client that the server has channels
        self.whole = False  #: the whole request has arrived
        self.ended = False  #: the whole reply is written
        self.disconnected = False
        self.task: asyncio.Task[None] | None = None
        self._connection = connection
        self._body: bytes | bytearray = b""
        self._unread = False  # something arrived that the application has not received yet
        self._changed: asyncio.Event | None = None  # set when there is something to receive; `receive` makes it
        self._started = False
        self._head = b""  # kept until the body comes: both leave in one segment
        self._chunked = False
        self._left = 0  # bytes of the body that the head announced

    @property
    def started(self) -> bool:
        """Whether the reply has begun."""
        return self._started

    # What the connection calls.

    def add(self, piece: bytes) -> int:
        """Take a piece of the body. Returns how many bytes wait for the application."""
        if not self._body:
            self._body = piece
        else:
            self._body = self._body if isinstance(self._body, bytearray) else bytearray(self._body)
            self._body += piece
        self._notify()
        return len(self._body)

    def complete(self) -> None:
        """The request has arrived to its end."""
        self.whole = True
        self._notify()

    def disconnect(self) -> None:
        """The client is gone."""
        self.disconnected = not self.ended
        self._notify()

    def _notify(self) -> None:
        self._unread = True
        if self._changed is not None:
            self._changed.set()
            self._changed = None

    async def run(self, app: Application, scope: Scope, running: set[HttpExchange]) -> None:
        """Let the application answer. `running` holds the exchange until then."""
        try:
            await app(scope, self.receive, self.send)
            if not (self.ended or self.disconnected):
                log.error("%s %s: the application sent no complete reply", self.method, scope["path"])
                await self._fail()
        except BaseException as error:
            log.error("%s %s failed", self.method, scope["path"], exc_info=error)
            await self._fail()
        finally:
            running.discard(self)

    async def _fail(self) -> None:
        """Reply with the status 500 or, in the middle of a reply, disconnect the client."""
        if self._started or self.disconnected:
            self._connection.transport.close()
        else:
            await self.send({"type": "http.response.start", "status": 500, "headers": _FAILED})
            await self.send({"type": "http.response.body", "body": b"Internal Server Error"})

    # What the application calls.

    def take(self, largest: int) -> bytes | None:
        """The body, if all of it has arrived, of at most `largest` bytes. Otherwise `receive` gives its parts."""
        if not self.whole or not self._unread or self.awaits_continue or len(self._body) > largest:
            return None
        if self.ended or self.disconnected:
            return None
        body, self._body, self._unread = self._body, b"", False
        self._connection.resume_reading()
        return bytes(body)

    def reply(self, reply: Reply) -> bool:
        """Send a whole reply. False if it must be sent in messages: a stream, or a client that reads slowly."""
        if reply.pieces is not None or self._connection.writable is not None or self._started:
            return False
        if not self.disconnected:
            length = (b"content-length", b"%d" % len(reply.body))
            self._start(reply.status, [(b"content-type", reply.kind), *reply.headers, length])
            self._write_body(reply.body, more=False)
        return True

    async def receive(self) -> dict[str, Any]:
        """The next part of the body; after the last part, the end of the exchange as a disconnect."""
        if self.awaits_continue:
            self.awaits_continue = False
            if not self._connection.transport.is_closing():
                self._connection.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        while not (self._unread or self.ended or self.disconnected):
            if self._changed is None:
                self._changed = asyncio.Event()
            await self._changed.wait()
        self._unread = False
        if self.ended or self.disconnected:
            return {"type": "http.disconnect"}
        body, self._body = self._body, b""
        self._connection.resume_reading()
        return {"type": "http.request", "body": bytes(body), "more_body": not self.whole}

    async def send(self, message: Any) -> None:
        """Send the head of the reply, or a part of its body."""
        if (writable := self._connection.writable) is not None:  # the client reads slowly
            await writable.wait()
        if self.disconnected:
            return
        if message["type"] == "http.response.body" and self._started and not self.ended:
            self._write_body(message.get("body", b""), bool(message.get("more_body")))
        elif message["type"] == "http.response.start" and not self._started:
            self._start(message["status"], message.get("headers", ()))
        else:
            raise RuntimeError(f"the application sent {message['type']} at the wrong time")

    def _start(self, status: int, headers: Headers) -> None:
        chunked = None
        lines = [_STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status]
        for name, value in headers:
            name = name.lower()
            if name == b"content-length":
                self._left, chunked = int(value), False
            elif name == b"transfer-encoding" and value.lower() == b"chunked":
                chunked = True
            elif name == b"connection" and b"close" in value.lower():
                self.keep_alive = False
                continue
            lines.append(b"%b: %b\r\n" % (name, value))
        if self.awaits_continue:  # the client may skip the body now: where its next request begins is unknown
            self.keep_alive = False
        if self.announces:
            lines.append(b"%b: 1\r\n" % ANNOUNCED)
        if not self.keep_alive:
            lines.append(b"connection: close\r\n")
        if chunked is None and status not in _NO_BODY and self.method != "HEAD":
            chunked = True
            lines.append(b"transfer-encoding: chunked\r\n")
        head = b"".join(lines)
        if len(head.translate(None, _CONTROL_CHARACTERS)) != len(head) - 2 * len(lines):
            raise RuntimeError("a header of the reply holds a line break or another control character")
        self._started, self._chunked = True, bool(chunked)
        if self._chunked:  # the first piece of a stream may come much later
            self._connection.transport.write(head + b"\r\n")
        else:
            self._head = head + b"\r\n"

    def _write_body(self, body: bytes, more: bool) -> None:
        transport, head = self._connection.transport, self._head
        if self.method == "HEAD":
            body, self._left = b"", 0
        elif self._chunked:
            body = (b"%x\r\n%b\r\n" % (len(body), body) if body else b"") + (b"" if more else b"0\r\n\r\n")
        else:
            self._left -= len(body)
            if self._left < 0 or (self._left and not more):
                raise RuntimeError("the body of the reply is not as long as its Content-Length says")
        self._head = b""
        if head and len(body) >= _LARGE_BODY:
            transport.writelines((head, body))
        elif head or body:
            transport.write(head + body)
        if not more:
            self.ended = True
            self._notify()
            self._connection.end(self)


def exchange_of(function: Receive | Send) -> HttpExchange | None:
    """The exchange whose `receive` or `send` this is."""
    exchange = getattr(function, "__self__", None)
    return exchange if isinstance(exchange, HttpExchange) else None
