"""A minimal HTTP/1.1 client for one server, with keep-alive connections.

A rollout makes many small requests to a server, and a general client would cost more CPU than the server: aiohttp takes
seven times the CPU time of this client. The parser is that of our servers. Redirects, cookies, proxies and compression
are not supported.

A connection carries one request at a time. It is closed unless the reply arrives whole, so no later request can get a
late reply.
"""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import Any, cast
from urllib.parse import quote

import orjson
from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from ludus.errors import Failure, UserError
from ludus.runtime.keys import without_keys_and_paths
from ludus.runtime.urls import checked_url

CONNECT_SECONDS = 30.0

#: An idle connection is reused for this long. Many servers close idle connections after five seconds.
KEPT_SECONDS = 4.0

_LARGE_BODY = 1 << 16
_LENGTH_HEADERS = (b"content-length", b"transfer-encoding")


class HttpReply:
    """The server's reply to a request."""

    __slots__ = ("body", "headers", "status")

    def __init__(self, status: int, body: bytes, headers: list[tuple[bytes, bytes]]) -> None:
        self.status = status
        self.body = body
        self.headers = headers

    def all(self, name: str) -> list[str]:
        """All values of the header with this lower-case name."""
        wanted = name.encode()
        return [str(value, "latin-1") for key, value in self.headers if key.lower() == wanted]

    def json(self) -> Any:
        """The value of the JSON body. Raises a `Failure` of kind `bad_response` for any other body."""
        try:
            return orjson.loads(self.body)
        except orjson.JSONDecodeError as error:
            raise Failure("bad_response", f"the server sent a body that is not JSON: {self.start()}") from error

    def start(self) -> str:
        """The first 300 bytes of the body as one line of text, for messages."""
        return without_keys_and_paths(" ".join(self.body[:300].decode("utf-8", "replace").split()))


class Connections:
    """Connections to one server. `headers` are sent with every request.

    There are no retries: the server may have done the work of a request whose reply was lost.
    """

    def __init__(self, url: str, headers: dict[str, str]) -> None:
        self.url = url.rstrip("/")
        if "@" in self.url.partition("://")[2].partition("/")[0]:
            raise UserError("a server's URL must not hold a password", "Set the token in LUDUS_TOKEN instead")
        parts = checked_url(self.url)
        self._tls = parts.scheme == "https"
        self._host, self._port = parts.hostname or "", parts.port or (443 if self._tls else 80)
        self._path = parts.path
        self._fixed_headers = _header_lines({"host": parts.netloc, **headers})
        self._heads: dict[tuple[str, str], bytes] = {}
        self._idle: list[_Connection] = []
        self._closed = False

    async def request(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> HttpReply:
        """Send a request and read the reply, of any status."""
        head = self._heads.get((method, path))
        if head is None:
            head = self._heads[method, path] = self._head(method, path)
        lines = _header_lines(headers) if headers else b""
        connection = self._idle_connection() or await self._connect()
        try:
            reply = await connection.exchange(b"%b%bcontent-length: %d\r\n\r\n" % (head, lines, len(body)), body)
        except ConnectionError as error:
            why = str(error) or type(error).__name__
            raise Failure("disconnected", f"{self.url} dropped the connection: {why}") from error
        finally:
            self._take_back(connection)
        return reply

    async def close(self) -> None:
        """Close the idle connections. A connection in use closes after its reply."""
        self._closed = True
        while self._idle:
            self._idle.pop().abort()
        await asyncio.sleep(0)  # the event loop closes an aborted socket in its next iteration

    def _idle_connection(self) -> _Connection | None:
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
            raise Failure("refused", f"cannot reach {self.url}: timed out after {CONNECT_SECONDS:g} s") from error
        except OSError as error:
            raise Failure("refused", f"cannot reach {self.url}: {error.strerror or error}") from error
        return connection

    def _head(self, method: str, path: str) -> bytes:
        target = quote(self._path + path, safe="/?&=%:@!$'()*+,;~") or "/"
        return f"{method} {target} HTTP/1.1\r\n".encode() + self._fixed_headers


class _Connection(asyncio.Protocol):
    """One connection. It is reusable after a whole reply, until any other bytes arrive."""

    def __init__(self) -> None:
        self.reusable = False
        self.idle_since = 0.0
        self._reply: asyncio.Future[HttpReply] | None = None
        self._in_head = True
        self._ends_at_close = False  # a reply without a length ends when the server closes the connection

    async def exchange(self, head: bytes, body: bytes) -> HttpReply:
        """Send a request and wait for its reply. Raises `ConnectionError` if the connection breaks."""
        if self._transport.is_closing():  # `connection_lost` has been called already, so no one would fail the future
            raise ConnectionResetError("the server closed it")
        self.reusable, self._in_head, self._ends_at_close = False, True, False
        self._reply = asyncio.get_running_loop().create_future()
        self._parser = HttpResponseParser(self)
        self._headers: list[tuple[bytes, bytes]] = []
        self._body: list[bytes] = []
        if len(body) < _LARGE_BODY:
            self._transport.write(head + body)
        else:
            self._transport.write(head)
            self._transport.write(body)
        return await self._reply

    def abort(self) -> None:
        """Close at once."""
        self.reusable = False
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self._reply is None or self._reply.done():  # bytes that belong to no request
            self.abort()
            return
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade) as error:
            self._fail(ConnectionError(f"the reply is not HTTP: {error}"))
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.reusable = False
        if self._ends_at_close and exc is None:
            self._finish()
        closed = ConnectionResetError(str(exc or "the server closed it"))
        self._fail(exc if isinstance(exc, ConnectionError) else closed)

    def on_message_begin(self) -> None:
        if self._reply is not None and self._reply.done():  # a second reply to one request
            self.abort()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # trailers after a chunked body are ignored
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        self._in_head = False
        interim = self._parser.get_status_code() < 200
        self._ends_at_close = not interim and not any(name.lower() in _LENGTH_HEADERS for name, _ in self._headers)

    def on_body(self, piece: bytes) -> None:
        self._body.append(piece)

    def on_message_complete(self) -> None:
        if self._parser.get_status_code() < 200:  # an interim reply, such as 103 Early Hints
            self._headers, self._body, self._in_head = [], [], True
            return
        sent = not self._transport.get_write_buffer_size()  # a server may reply before it has read the whole body
        wanted = self._reply is not None and not self._reply.done()
        self.reusable = sent and wanted and self._parser.should_keep_alive() and not self._transport.is_closing()
        self._finish()

    def _finish(self) -> None:
        if self._reply is not None and not self._reply.done():
            body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
            self._reply.set_result(HttpReply(self._parser.get_status_code(), body, self._headers))

    def _fail(self, error: ConnectionError) -> None:
        if self._reply is not None and not self._reply.done():
            self._reply.set_exception(error)


def _header_lines(headers: dict[str, str]) -> bytes:
    """The headers as bytes. Values may come from a row, so a value with a line break or a NUL is refused."""
    text = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    if text.count("\n") != len(headers) or text.count("\r") != len(headers) or "\0" in text:
        raise Failure("bad_request", f"one of the headers {', '.join(headers)} holds a line break or a NUL")
    return text.encode("utf-8", "replace")
