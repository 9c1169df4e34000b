"""A lean HTTP/1.1 client for one server, with keep-alive connections, for our servers and for model providers.

A rollout makes many small requests, so the client's CPU time counts: `benchmarks/bench.py` compares it with a bare
aiohttp loop. This client speaks TLS, goes through HTTP proxies, and reads gzip and deflate. It follows no redirects,
keeps no cookies, and does not retry: a request whose reply was lost may have been executed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from time import monotonic
from typing import Any
from urllib.parse import quote

from ludus.errors import Failure, UserError
from ludus.http.carriers import Carriers
from ludus.http.channels import ANNOUNCED, UPGRADE
from ludus.http.connecting import HttpProxy, Route, reason_of
from ludus.http.connection import REPLY_BYTES, Dropped, HttpConnection, HttpReply
from ludus.runtime.urls import checked_url

CONNECT_SECONDS = 30.0
#: A connection that takes longer is tried again so often while others to the same server are made: then the server can
#: be reached, and this process is too busy for thousands of connections at once.
_TRIES_WHILE_BUSY = 4

#: An idle connection to one of our servers is reused for this long. Many servers close idle connections after 5 s.
KEPT_SECONDS = 4.0


#: The most bytes that one read of a connection takes.
_READ_BYTES = 1 << 18

_LARGE_BODY = 1 << 16

#: The heads of requests that are kept: most servers have few paths, some have one for each session.
_HEADS = 256


class Disconnected(Failure):
    """The server dropped the connection. `begun`: in the middle of its reply. `reused`: it had been idle before."""

    def __init__(self, cause: str, begun: bool, reused: bool) -> None:
        super().__init__("disconnected", cause)
        self.begun, self.reused = begun, reused


class Connections:
    """Connections to one server. `headers` are sent with every request; messages call the server `name`.

    `limit` is the largest number of connections; further requests wait for a free one. With `channels`, connections are
    channels of few sockets, if the server announces them. A large body gets a socket of its own, to delay no others.
    `unix` is the path of a Unix socket to connect to. Without `names_host`, each request brings its own header `host`.
    """

    def __init__(
        self,
        url: str,
        headers: dict[str, str],
        *,
        name: str = "",
        kept_seconds: float | None = None,
        reply_bytes: int = REPLY_BYTES,
        limit: int | None = None,
        proxy: HttpProxy | None = None,
        channels: bool = False,
        unix: str | None = None,
        names_host: bool = True,
    ) -> None:
        self.url = url.rstrip("/")
        if "@" in self.url.partition("://")[2].partition("/")[0]:
            raise UserError("a server's URL must not hold a password", "Set the token in LUDUS_TOKEN instead")
        parts = checked_url(self.url)
        self.name = name or self.url
        tls, host = parts.scheme == "https", (parts.hostname or "").encode("idna").decode()
        netloc = f"[{host}]" if ":" in host else host
        netloc += f":{parts.port}" if parts.port else ""
        self._route = Route(host, parts.port or (443 if tls else 80), tls, proxy, unix)
        self._path = parts.path
        if proxy is not None and not tls:  # a proxy reads the whole URL, and its own header, from each request
            self._path = f"http://{netloc}{parts.path}"
            headers = {**headers, **({"proxy-authorization": proxy.authorization} if proxy.authorization else {})}
        named = not names_host or "host" in map(str.lower, headers)
        self._fixed_headers = _header_lines(headers if named else {"host": netloc, **headers})
        self._kept_seconds, self._reply_bytes = kept_seconds, reply_bytes
        self._places = asyncio.Semaphore(limit) if limit else None
        self._heads: dict[tuple[str, str], bytes] = {}
        self._idle: list[HttpConnection] = []
        self._idle_sockets: list[HttpConnection] = []  # where the others are channels
        self._may_have_channels = channels and proxy is None
        self._carriers: Carriers | None = None
        self._buffer = memoryview(bytearray(_READ_BYTES))
        self._closed = False
        self._made = 0  # connections so far

    def request(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
    ) -> Coroutine[Any, Any, HttpReply]:
        """Send a request and read the reply, of any status."""
        head = self._heads.get((method, path))
        if head is None:
            if len(self._heads) >= _HEADS:
                self._heads.clear()
            head = self._heads[method, path] = self._head(method, path)
        if headers:
            head += _header_lines(headers)
        head = b"%bcontent-length: %d\r\n\r\n" % (head, len(body))
        return self._exchange(head, body) if self._places is None else self._exchange_in_turn(self._places, head, body)

    async def close(self) -> None:
        """Close the idle connections. A connection in use closes after its reply."""
        self._closed = True
        for idle in (self._idle, self._idle_sockets):
            while idle:
                idle.pop().abort()
        if self._carriers is not None:
            self._carriers.close()
        await asyncio.sleep(0)  # the event loop closes an aborted socket in its next iteration

    async def _exchange_in_turn(self, places: asyncio.Semaphore, head: bytes, body: bytes) -> HttpReply:
        async with places:
            return await self._exchange(head, body)

    async def _exchange(self, head: bytes, body: bytes) -> HttpReply:
        carriers = self._carriers if len(body) < _LARGE_BODY else None
        idle = self._idle if carriers is self._carriers else self._idle_sockets
        connection, seconds = self._idle_connection(idle), 0.0
        reused = connection is not None
        if connection is None:
            began = monotonic()
            connection = await self._connect(carriers)
            seconds = monotonic() - began
        try:
            reply = await connection.exchange(head, body)
        except Dropped as error:
            raise self._disconnected(error, reused) from error
        finally:
            if connection.reusable and not self._closed:
                connection.idle_since = monotonic()
                idle.append(connection)
            else:
                connection.abort()
        if seconds:
            reply.connect_seconds = seconds
            if self._may_have_channels and self._carriers is None:
                self._look_for_channels(reply)
        return reply

    def _look_for_channels(self, reply: HttpReply) -> None:
        """From now on use channels, if the server announces them. The connections so far remain for large bodies."""
        if any(name == ANNOUNCED for name, _ in reply.headers):
            request = self._head("GET", "/") + b"connection: upgrade\r\nupgrade: %b\r\n\r\n" % UPGRADE
            self._carriers = Carriers(self._route.connect, request)
            self._idle_sockets, self._idle = self._idle, []

    def _disconnected(self, error: Dropped, reused: bool) -> Failure:
        if error.begun:
            cause = f"{self.name} dropped the connection in the middle of its answer: {error}"
        else:
            cause = f"{self.name} dropped the connection before it answered: {error}"
        return Disconnected(cause, error.begun, reused)

    def _idle_connection(self, idle: list[HttpConnection]) -> HttpConnection | None:
        since = monotonic() - (KEPT_SECONDS if self._kept_seconds is None else self._kept_seconds)
        while idle:
            connection = idle.pop()
            if connection.reusable and connection.idle_since > since:
                return connection
            connection.abort()
        return None

    async def _connect(self, carriers: Carriers | None = None) -> HttpConnection:
        for left in reversed(range(_TRIES_WHILE_BUSY)):
            made = self._made
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    connection = await self._open(carriers)
            except TimeoutError as error:
                if left and self._made > made:
                    continue
                raise Failure("refused", f"cannot reach {self.name}: timed out after {CONNECT_SECONDS:g} s") from error
            except OSError as error:
                raise Failure("refused", f"cannot reach {self.name}: {reason_of(error)}") from error
            self._made += 1
            return connection
        raise AssertionError("the last try returns or raises")

    async def _open(self, carriers: Carriers | None) -> HttpConnection:
        if carriers is not None:
            connection = HttpConnection(self._buffer, self._reply_bytes)
            if await carriers.open(connection):
                return connection
            self._carriers, self._may_have_channels = None, False
        return await self._route.connect(lambda: HttpConnection(self._buffer, self._reply_bytes))

    def _head(self, method: str, path: str) -> bytes:
        target = quote(self._path + path, safe="/?&=%:@!$'()*+,;~[]") or "/"
        return f"{method} {target} HTTP/1.1\r\n".encode() + self._fixed_headers


def _header_lines(headers: dict[str, str]) -> bytes:
    """The headers as bytes. Values may come from a row, so a value with a line break or a NUL is refused."""
    text = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    if text.count("\n") != len(headers) or text.count("\r") != len(headers) or "\0" in text:
        raise Failure("bad_request", f"one of the headers {', '.join(headers)} holds a line break or a NUL")
    return text.encode("utf-8", "replace")
