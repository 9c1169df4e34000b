"""One keep-alive connection of the HTTP/1.1 client: it sends a request, and reads the reply within limits.

Our servers use the same parser. A connection carries one request at a time. It is reusable only after a whole reply, so
no later request can get the reply of one that was cancelled. (A second reply to one request is not detected if it
arrives after the next request: it is taken for that request's reply.)
"""

from __future__ import annotations

import asyncio
import zlib
from typing import Any, cast

import orjson
from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from ludus.errors import Failure
from ludus.runtime.keys import without_keys_and_paths

#: The largest body of a reply, after decompression, unless the user of the client says otherwise.
REPLY_BYTES = 64 << 20

_HEAD_BYTES = 1 << 18
_MOST_MEMBERS = 1000  # of a gzip file
_LARGE_BODY = 1 << 16


class Dropped(ConnectionError):
    """The server closed the connection before the reply was whole. `begun` says whether bytes of it had arrived."""

    def __init__(self, why: str, begun: bool) -> None:
        super().__init__(why)
        self.begun = begun


class HttpReply:
    """The server's reply to a request, and the seconds that the request waited for a new connection."""

    __slots__ = ("body", "connect_seconds", "headers", "status")

    def __init__(self, status: int, body: bytes, headers: list[tuple[bytes, bytes]]) -> None:
        self.status = status
        self.body = body
        self.headers = headers
        self.connect_seconds = 0.0

    def all(self, name: str) -> list[str]:
        """All values of the header with this lower-case name."""
        wanted = name.encode()
        return [str(value, "latin-1") for key, value in self.headers if key.lower() == wanted]

    def header(self, name: str) -> str | None:
        """The first value of the header with this lower-case name."""
        return next(iter(self.all(name)), None)

    @property
    def cookie(self) -> str:
        """The value of the Cookie header that sends the reply's cookies back; empty if it set none."""
        return "; ".join(line.partition(";")[0] for line in self.all("set-cookie"))

    def json(self) -> Any:
        """The value of the JSON body. Raises a `Failure` of kind `bad_response` for any other body."""
        try:
            return orjson.loads(self.body)
        except orjson.JSONDecodeError as error:
            raise Failure("bad_response", f"the server sent a body that is not JSON: {self.start()}") from error

    def start(self) -> str:
        """The first 300 bytes of the body as one line of text, for messages."""
        return without_keys_and_paths(" ".join(self.body[:300].decode("utf-8", "replace").split()))


class HttpConnection(asyncio.BufferedProtocol):
    """One connection to a server. A reply larger than `largest` bytes is a `Failure` of kind `too_large`.

    The event loop reads into `buffer` and calls the parser at once, so all connections of a loop can share the buffer.
    Without one, asyncio would allocate 256 KB for every read.
    """

    def __init__(self, buffer: memoryview, largest: int = REPLY_BYTES) -> None:
        self._buffer = buffer
        self.reusable = False
        self.idle_since = 0.0
        self._largest = largest
        self._reply: asyncio.Future[HttpReply] | None = None
        self._parser = HttpResponseParser(self)

    def exchange(self, head: bytes, body: bytes) -> asyncio.Future[HttpReply]:
        """Send a request and return its reply, to be awaited. Raises `Dropped` if the connection breaks."""
        transport = self._transport
        if transport.is_closing():  # `connection_lost` has been called or will be, so no one would fail the future
            self.reusable = False
            raise Dropped("the server closed it", begun=False)
        self.reusable = self._ends_at_close = self._whole = False
        self._in_head, self._status, self._received, self._sent_as_body, self._body_bytes = True, 0, 0, 0, 0
        self._headers: list[tuple[bytes, bytes]] = []
        self._body: bytes | bytearray = b""
        self._unpack: _Unpacking | None = None
        self._reply = reply = self._loop.create_future()
        if len(body) < _LARGE_BODY:
            transport.write(head + body)
        else:
            transport.write(head)
            transport.write(body)
        return reply

    def abort(self) -> None:
        """Close at once."""
        self.reusable = False
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._loop = asyncio.get_running_loop()

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.data_received(self._buffer[:nbytes])

    def data_received(self, data: bytes | memoryview) -> None:
        """Read a part of the reply: from the buffer, or from a channel."""
        if self._reply is None or self._reply.done():  # bytes that belong to no request
            self.abort()
            return
        self._received += len(data)
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:
            self._fail(Dropped("the server changed the protocol", begun=True))
        except HttpParserError as error:  # also for bytes after a reply: then its length may be wrong
            self._fail(Dropped(f"the reply is not HTTP: {error}", begun=True))
        if self._whole:
            self._finish()
            return
        overhead = self._received - self._sent_as_body
        if overhead > _HEAD_BYTES and (self._in_head or overhead > self._largest):  # headers, chunk sizes, trailers
            self._fail(Failure("too_large", f"the headers of the reply are larger than {_HEAD_BYTES:,} bytes"))

    def connection_lost(self, exc: Exception | None) -> None:
        self.reusable = False
        if self._reply is None or self._reply.done():
            return
        if self._ends_at_close and exc is None:
            self._finish()
        else:
            self._fail(Dropped(str(exc or "the server closed it"), begun=self._received > 0))

    # What the parser calls, in the order of a reply. An error fails the reply: raised here, the parser would hide it.

    def on_message_begin(self) -> None:
        if self._whole:  # a second reply to one request
            self.abort()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # trailers after a chunked body are ignored
            self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        if self._whole:
            return
        self._in_head = False
        self._status = status = self._parser.get_status_code()
        if status < 100:
            self._fail(Dropped(f"the reply is not HTTP: it has the status {status}", begun=True))
        framed = status < 200
        for name, value in self._headers:
            if 14 <= len(name) <= 17:  # as long as one of these names
                name = name.lower()
                if name == b"content-length" or name == b"transfer-encoding":
                    framed = True
                elif name == b"content-encoding":
                    self._set_encoding(value.strip().lower())
        self._ends_at_close = not framed  # a reply without a length ends when the server closes the connection

    def on_body(self, piece: bytes) -> None:
        if self._whole:
            return
        self._sent_as_body += len(piece)
        if self._unpack is not None:
            try:
                piece = self._unpack.feed(piece, self._largest - self._body_bytes + 1)
            except zlib.error as error:
                self._fail(Failure("bad_response", f"the reply is not what its Content-Encoding says: {error}"))
                return
        self._body_bytes += len(piece)
        if self._body_bytes > self._largest:
            self._fail(Failure("too_large", f"the reply is larger than {self._largest:,} bytes"))
        elif not self._body:
            self._body = piece
        else:  # a list of small pieces would take many times the memory of the body
            self._body = self._body if isinstance(self._body, bytearray) else bytearray(self._body)
            self._body += piece

    def on_message_complete(self) -> None:
        if self._status < 200:  # an interim reply, such as 103 Early Hints
            self._headers, self._body, self._in_head, self._unpack = [], b"", True, None
            return
        if self._whole or self._transport.is_closing():  # a second reply, or one that failed already
            return
        self._whole = True
        sent = not self._transport.get_write_buffer_size()  # a server may reply before it has read the whole body
        self.reusable = sent and self._parser.should_keep_alive()

    def _set_encoding(self, name: bytes) -> None:
        if name in (b"gzip", b"x-gzip", b"deflate"):
            self._unpack = _Unpacking()
        elif name not in (b"", b"identity"):
            shown = name[:40].decode("ascii", "replace")
            cause = f"the reply has the Content-Encoding {shown!r}, which the request did not allow"
            self._fail(Failure("bad_response", cause))

    def _finish(self) -> None:
        if self._reply is None or self._reply.done():
            return
        if self._unpack is not None and not self._unpack.complete:
            self._fail(Dropped("the compressed reply is incomplete", begun=True))
            return
        self._reply.set_result(HttpReply(self._status, bytes(self._body), self._headers))

    def _fail(self, error: Exception) -> None:
        """Fail the reply, and close the connection."""
        if self._reply is not None and not self._reply.done():
            self._reply.set_exception(error)
        self.abort()


class _Unpacking:
    """The decompression of one body in gzip or deflate, bounded in size."""

    __slots__ = ("_inflate", "_members")

    def __init__(self) -> None:
        self._inflate: Any = None
        self._members = 0

    def feed(self, data: bytes, room: int) -> bytes:
        """The next part of the body: at most `room` bytes, which is one byte more than the body may have."""
        pieces = []
        while data and room > 0:
            if self._inflate is None:
                self._members += 1
                if self._members > _MOST_MEMBERS:
                    raise zlib.error(f"it holds more than {_MOST_MEMBERS} gzip files")
                # 47 reads the headers of gzip and zlib. Some servers send deflate without any header: -15.
                self._inflate = zlib.decompressobj(47 if data[0] == 0x1F or data[0] & 0x0F == 8 else -15)
            piece = self._inflate.decompress(data, room)
            pieces.append(piece)
            room -= len(piece)
            data = self._inflate.unused_data if self._inflate.eof else b""
            if data.strip(b"\0"):  # a file of several gzip members
                self._inflate = None
            else:
                data = b""
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    @property
    def complete(self) -> bool:
        """Whether the compressed data ended where the body ended."""
        return self._inflate is None or bool(self._inflate.eof)
