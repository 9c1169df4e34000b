"""One connection of a client to a server: it reads HTTP/1.1 requests, and lets an ASGI application answer each.

A small request costs a general server more CPU than our own work on it: `benchmarks/serving.py` compares this one with
uvicorn. Our client uses the same parser. Pipelined requests are answered in order. A connection has no timers: its
server checks all connections periodically.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from time import monotonic
from typing import Any, cast
from urllib.parse import unquote

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser, parse_url

from ludus.http.channels import SWITCHED, UPGRADE, Carrier
from ludus.http.exchange import READ_AHEAD_BYTES, Application, HttpExchange
from ludus.http.messages import Headers, Scope

_ASGI = {"version": "3.0", "spec_version": "2.3"}
_NOT_HTTP = b"Invalid HTTP request received."
#: The largest head of a request, and the most bytes of trailers and of the framing of a body.
HEAD_BYTES = 1 << 16
#: The framing of a chunked body may take this many times its bytes: chunks may be small.
_FRAMING = 16
#: Pipelined requests: reading pauses at the first number, and a client that sends more than the second is refused.
_READ_WAITING, MOST_WAITING = 8, 256

_BAD_REQUEST = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\n"
    b"content-length: %d\r\nconnection: close\r\n\r\n%b" % (len(_NOT_HTTP), _NOT_HTTP)
)


class ServerConnection(asyncio.Protocol):
    """One connection. `connections` and `running` are the server's: its open connections, and requests in progress."""

    transport: asyncio.Transport
    closed: asyncio.Future[None]  #: done when the connection is closed

    def __init__(
        self,
        app: Application,
        connections: set[ServerConnection | Carrier],
        running: set[HttpExchange],
        channels: bool = False,
    ) -> None:
        self._app, self._connections, self._running, self._offers_channels = app, connections, running, channels
        self._parser: Any = HttpRequestParser(self)
        with contextlib.suppress(AttributeError):  # an older parser needs no permission
            self._parser.set_dangerous_leniencies(lenient_data_after_close=True)
        self.writable: asyncio.Event | None = None  #: set when the client has read what it was sent; None if it has
        self._answering: HttpExchange | None = None  # the request that is being answered, or was answered last
        self._waiting: deque[tuple[HttpExchange, Scope]] = deque()  # pipelined requests
        self._last: HttpExchange | None = None  # the last request whose head has arrived
        self._reading = True
        self._since, self._expects = monotonic(), "head"  # what the server waits for, and since when
        self._url, self._headers = b"", list[tuple[bytes, bytes]]()
        self._awaits_continue = self._is_ours = self._switching = False
        self._head_bytes = self._framing_bytes = self._body_bytes = 0
        self._refused = False  # the client sent bytes that are no request: nothing after them is answered
        self._unsent, self._stalled_since = 0, 0.0  # what a client that reads slowly has not read, and since when

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's transports are not subclasses
        self._loop = asyncio.get_running_loop()
        self.closed = self._loop.create_future()
        self._server, self._client = (_address(transport.get_extra_info(name)) for name in ("sockname", "peername"))
        self._connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)
        if not self.closed.done():
            self.closed.set_result(None)
        if self._answering is not None:
            self._answering.disconnect()
        self.resume_writing()
        self._waiting.clear()
        self._parser = self._last = self._answering = None  # break the reference cycles

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        self._head_bytes += len(data)
        self._framing_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:  # to channels, or to an unknown protocol; the parser reads nothing more
            if self._switching:
                self._switch()
            elif self._last is not None:
                self._last.keep_alive = False
        except HttpParserError:
            self._refuse()
        if self._expects == "head":
            too_large = self._head_bytes > HEAD_BYTES
        else:
            too_large = self._expects == "body" and self._framing_bytes > HEAD_BYTES + _FRAMING * self._body_bytes
        if too_large or len(self._waiting) > MOST_WAITING:
            self._refuse()

    def _refuse(self) -> None:
        """Answer 400 to bytes that are no request, after the replies to earlier requests, and close."""
        self._refused = True
        last, answering = self._last, self._answering
        if last is not None and not last.whole and not last.ended:  # its own body is at fault
            if last is answering:
                if not last.started:
                    self.transport.write(_BAD_REQUEST)
                self.transport.close()
                return
            self._waiting.pop()
        if answering is None or answering.ended:
            self.transport.write(_BAD_REQUEST)
            self.transport.close()

    def pause_writing(self) -> None:
        if self.writable is None:
            self.writable = asyncio.Event()
            self._unsent, self._stalled_since = 0, monotonic()

    def resume_writing(self) -> None:
        if self.writable is not None:
            self.writable.set()
            self.writable = None

    def pause_reading(self) -> None:
        """Read nothing from the socket for now."""
        if self._reading:
            self._reading = False
            self.transport.pause_reading()

    def resume_reading(self) -> None:
        """Read from the socket again, unless many requests wait already."""
        if not self._reading and len(self._waiting) < _READ_WAITING:
            self._reading = True
            self.transport.resume_reading()

    def stop(self) -> None:
        """Close the connection, after the reply to the last request that has arrived."""
        if self._last is None or self._last.ended:
            self.transport.close()
        else:
            self._last.keep_alive = False

    def waits_for(self, now: float) -> tuple[str, float]:
        """What the server waits for, and how long: `head` or `body` of a request, the `next` request, its own `reply`,
        or a `reader` that takes nothing of a reply."""
        if self.writable is not None:
            unsent = self.transport.get_write_buffer_size()
            if unsent < self._unsent:
                self._stalled_since = now
            self._unsent = unsent
            return "reader", now - self._stalled_since
        return self._expects, now - self._since

    def _switch(self) -> None:
        """Make this connection a carrier. Each of its channels is a connection like this one."""
        carrier = Carrier(lambda: ServerConnection(self._app, self._connections, self._running))
        self.transport.write(SWITCHED)
        self.transport.set_protocol(carrier)
        carrier.connection_made(self.transport)
        self._connections.discard(self)
        self._connections.add(carrier)
        carrier.closed.add_done_callback(lambda _: self._connections.discard(carrier))
        self._parser = None

    # What the parser calls, in the order of a request.

    def on_message_begin(self) -> None:
        self._since, self._expects = monotonic(), "head"
        self._url, self._headers, self._awaits_continue, self._is_ours = b"", [], False, False

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._expects == "head":  # trailers after a chunked body are ignored
            name = name.lower()
            if name == b"expect" and value.lower() == b"100-continue":
                self._awaits_continue = True
            elif self._offers_channels and name.startswith(b"x-ludus-"):
                self._is_ours = True
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        self._expects, parser, version = "body", self._parser, self._parser.get_http_version()
        self._head_bytes = self._framing_bytes = self._body_bytes = 0
        if parser.should_upgrade() and _has_body(self._headers):  # the parser would leave out the body
            self._expects = "next"
            self._refuse()
            return
        keep_alive = version != "1.0" and parser.should_keep_alive()
        if self._offers_channels and parser.should_upgrade() and _asks_for_channels(self._headers):
            if self._last is None or self._last.ended:
                self._switching = True
            else:
                self._refuse()
            return
        before, method = self._last, parser.get_method().decode("ascii")
        scope = self._scope(method, version)  # raises where the target is no URL: no exchange begins then
        self._last = exchange = HttpExchange(self, method, keep_alive, self._awaits_continue)
        exchange.announces = self._is_ours
        if before is None or before.ended:
            self._start(exchange, scope)
        else:
            self._waiting.append((exchange, scope))
            if len(self._waiting) >= _READ_WAITING:
                self.pause_reading()

    def on_body(self, piece: bytes) -> None:
        exchange = self._last
        self._body_bytes += len(piece)
        if exchange is not None and not exchange.ended and exchange.add(piece) > READ_AHEAD_BYTES:
            self.pause_reading()

    def on_message_complete(self) -> None:
        if self._refused:
            return
        exchange = self._last
        if exchange is None or exchange.ended:
            self._since, self._expects = monotonic(), "next"
        else:
            self._expects = "reply"
            exchange.complete()

    def _scope(self, method: str, version: str) -> Scope:
        raw, query = self._url, b""
        if not raw.startswith(b"/") or b"?" in raw or b"#" in raw:
            parsed = parse_url(raw)
            raw, query = parsed.path, parsed.query or b""
        path = raw.decode("ascii")
        return {
            "type": "http",
            "asgi": _ASGI,
            "http_version": version,
            "server": self._server,
            "client": self._client,
            "scheme": "http",
            "root_path": "",
            "headers": self._headers,
            "method": method,
            "path": unquote(path) if "%" in path else path,
            "raw_path": raw,
            "query_string": query,
        }

    def _start(self, exchange: HttpExchange, scope: Scope) -> None:
        self._answering = exchange
        self._running.add(exchange)
        exchange.task = self._loop.create_task(exchange.run(self._app, scope, self._running))

    def end(self, exchange: HttpExchange) -> None:
        """A reply is complete: answer the next request, or wait for one."""
        if not exchange.keep_alive:
            self.transport.close()
        if self.transport.is_closing():
            return
        if self._waiting:
            self._start(*self._waiting.popleft())
        elif self._refused:
            self.transport.write(_BAD_REQUEST)
            self.transport.close()
            return
        elif self._expects == "reply":
            self._since, self._expects = monotonic(), "next"
        self.resume_reading()


def _asks_for_channels(headers: Headers) -> bool:
    """Whether a request asks to switch to channels. A web page cannot ask for them, and may not."""
    return (b"upgrade", UPGRADE) in headers and all(name != b"origin" for name, _ in headers)


def _has_body(headers: Headers) -> bool:
    return any(name == b"transfer-encoding" or (name == b"content-length" and value != b"0") for name, value in headers)


def _address(info: Any) -> tuple[str, int] | None:
    """The address of a TCP socket; a Unix socket has none."""
    return (str(info[0]), int(info[1])) if isinstance(info, tuple) else None
