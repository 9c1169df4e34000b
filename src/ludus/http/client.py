"""HTTP/1.1 to one server with no more than it takes: a request out, a reply in, over connections that are kept.

What a rollout does on a server is many small requests, and a client that is made for everything would cost more than
the server that answers: the same requests take seven times the processor time through aiohttp. The parser is the one
that the servers use. Redirects, cookies, proxies and compression are none of its business.

A connection carries one request at a time and is closed when anything but a whole reply comes of it, so that a late
reply finds nobody.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Any, cast
from urllib.parse import quote

import orjson
from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from ludus.errors import Failure, UserError
from ludus.runtime.keys import public
from ludus.runtime.urls import checked_url

CONNECT_SECONDS = 30.0

#: For how long an idle connection is used again. Many servers close theirs after five seconds.
KEPT_SECONDS = 4.0

_LARGE = 1 << 16
_LENGTHS = (b"content-length", b"transfer-encoding")


class Reply:
    """What came back."""

    __slots__ = ("body", "headers", "status")

    def __init__(self, status: int, body: bytes, headers: list[tuple[bytes, bytes]]) -> None:
        self.status = status
        self.body = body
        self.headers = headers

    def all(self, name: str) -> list[str]:
        """The values of a header, by its lower-case name."""
        wanted = name.encode()
        return [str(value, "latin-1") for key, value in self.headers if key.lower() == wanted]

    def json(self) -> Any:
        """The body as JSON, or a typed failure."""
        try:
            return orjson.loads(self.body)
        except orjson.JSONDecodeError as error:
            raise Failure("bad_response", f"the server sent no JSON: {self.start()}") from error

    def start(self) -> str:
        """The first words of the body, for people."""
        return public(" ".join(self.body[:300].decode("utf-8", "replace").split()))


class Connections:
    """Connections to one server. `headers` are sent with every request.

    It never asks twice: what it asks for may have been done already.
    """

    def __init__(self, url: str, headers: dict[str, str]) -> None:
        self.url = url.rstrip("/")
        if "@" in self.url.partition("://")[2].partition("/")[0]:
            raise UserError("a server's URL must not hold a password", "Put a token into LUDUS_TOKEN")
        parts = checked_url(self.url)
        self._tls = parts.scheme == "https"
        self._host, self._port = parts.hostname or "", parts.port or (443 if self._tls else 80)
        self._path = parts.path
        self._fixed = _lines({"host": parts.netloc, **headers})
        self._heads: dict[tuple[str, str], bytes] = {}
        self._idle: list[_Connection] = []
        self._closed = False

    async def request(self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None) -> Reply:
        """Send a request and read its reply, whatever its status."""
        head = self._heads.get((method, path))
        if head is None:
            head = self._heads[method, path] = self._head(method, path)
        named = _lines(headers) if headers else b""
        connection = self._kept() or await self._connect()
        try:
            reply = await connection.exchange(b"%b%bcontent-length: %d\r\n\r\n" % (head, named, len(body)), body)
        except ConnectionError as error:
            why = str(error) or type(error).__name__
            raise Failure("disconnected", f"{self.url} dropped the connection: {why}") from error
        finally:
            self._take_back(connection)
        return reply

    async def close(self) -> None:
        """Close what is idle. A connection that is in use is closed when its reply is there."""
        self._closed = True
        while self._idle:
            self._idle.pop().abort()
        await asyncio.sleep(0)  # the loop closes a socket in its next turn

    def _kept(self) -> _Connection | None:
        since = monotonic() - KEPT_SECONDS
        while self._idle:
            connection = self._idle.pop()
            if connection.reusable and connection.idle_since > since:
                return connection
            connection.abort()
        return None

    def _take_back(self, connection: _Connection) -> None:
        if connection.reusable and not self._closed:
            connection.idle_since = monotonic()
            self._idle.append(connection)
        else:
            connection.abort()

    async def _connect(self) -> _Connection:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                _, connection = await loop.create_connection(_Connection, self._host, self._port, ssl=self._tls or None)
        except TimeoutError as error:
            raise Failure("refused", f"cannot reach {self.url}: no connection after {CONNECT_SECONDS:g} s") from error
        except OSError as error:
            raise Failure("refused", f"cannot reach {self.url}: {error.strerror or error}") from error
        return connection

    def _head(self, method: str, path: str) -> bytes:
        target = quote(self._path + path, safe="/?&=%:@!$'()*+,;~") or "/"
        return f"{method} {target} HTTP/1.1\r\n".encode() + self._fixed


class _Connection(asyncio.Protocol):
    """One connection. It can be used again only between a whole reply and whatever comes next."""

    def __init__(self) -> None:
        self.reusable = False
        self.idle_since = 0.0
        self._answer: asyncio.Future[Reply] | None = None
        self._in_head = True
        self._until_end = False  # where a reply does not say how long it is, it ends with the connection

    async def exchange(self, head: bytes, body: bytes) -> Reply:
        """Send a request and wait for its reply. Raises `ConnectionError` where none comes."""
        if self._transport.is_closing():  # it was lost before anything could be asked, and is not lost twice
            raise ConnectionResetError("it was closed")
        self.reusable, self._in_head, self._until_end = False, True, False
        self._answer = asyncio.get_running_loop().create_future()
        self._parser = HttpResponseParser(self)
        self._headers: list[tuple[bytes, bytes]] = []
        self._body: list[bytes] = []
        if len(body) < _LARGE:
            self._transport.write(head + body)
        else:
            self._transport.write(head)
            self._transport.write(body)
        return await self._answer

    def abort(self) -> None:
        """Close at once."""
        self.reusable = False
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self._answer is None or self._answer.done():  # nobody asked for this
            self.abort()
            return
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            self._fail(ConnectionError(f"it does not speak HTTP: {error}"))
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.reusable = False
        if self._until_end and exc is None:
            self._finish()
        self._fail(exc if isinstance(exc, ConnectionError) else ConnectionResetError(str(exc or "it was closed")))

    def on_message_begin(self) -> None:
        if self._answer is not None and self._answer.done():  # more than was asked for
            self.abort()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # what comes behind a body is no header
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        self._in_head = False
        interim = self._parser.get_status_code() < 200
        self._until_end = not interim and not any(name.lower() in _LENGTHS for name, _ in self._headers)

    def on_body(self, piece: bytes) -> None:
        self._body.append(piece)

    def on_message_complete(self) -> None:
        if self._parser.get_status_code() < 200:  # only a word in advance
            self._headers, self._body, self._in_head = [], [], True
            return
        sent = not self._transport.get_write_buffer_size()  # a server may answer before it has read everything
        wanted = self._answer is not None and not self._answer.done()
        self.reusable = sent and wanted and self._parser.should_keep_alive() and not self._transport.is_closing()
        self._finish()

    def _finish(self) -> None:
        if self._answer is not None and not self._answer.done():
            body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
            self._answer.set_result(Reply(self._parser.get_status_code(), body, self._headers))

    def _fail(self, error: ConnectionError) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)


def _lines(headers: dict[str, str]) -> bytes:
    """Headers as they are sent. A value may come from a row: one that would end its line is refused."""
    text = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    if text.count("\n") != len(headers) or text.count("\r") != len(headers) or "\0" in text:
        raise Failure("bad_request", f"a header cannot hold a line break, and one of {', '.join(headers)} does")
    return text.encode("utf-8", "replace")
