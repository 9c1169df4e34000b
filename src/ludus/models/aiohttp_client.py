"""aiohttp as the client for a model's endpoint: for proxies behind TLS, and where `model.http` is `aiohttp`."""

from __future__ import annotations

from contextvars import ContextVar
from time import perf_counter
from typing import Any

import aiohttp
from yarl import URL

from ludus.errors import Failure
from ludus.http.client import CONNECT_SECONDS, Disconnected
from ludus.http.connecting import HttpProxy
from ludus.http.connection import HttpReply

_connect_seconds: ContextVar[float] = ContextVar("connect_seconds", default=0.0)
_PIECE = 1 << 16


class AiohttpClient:
    """One server behind an aiohttp session. Raises the failures that `http.client.Connections` raises."""

    def __init__(
        self,
        url: str,
        headers: dict[str, str],
        *,
        name: str,
        reply_bytes: int,
        limit: int | None = None,
        proxy: HttpProxy | None = None,
    ) -> None:
        self._url, self._name, self._largest = URL(url), name, reply_bytes
        self._session = aiohttp.ClientSession(
            connector=_Connector(limit=limit or 0, keepalive_timeout=30),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS),
            headers=headers,
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        self._proxy = proxy.url if proxy is not None else None

    async def request(self, method: str, path: str, body: bytes, headers: dict[str, str] | None = None) -> HttpReply:
        """Send a request and read the reply, of any status."""
        _connect_seconds.set(0.0)
        try:
            url = self._url.join(URL(path))
            http = await self._session.request(
                method, url, data=body, headers=headers, allow_redirects=False, proxy=self._proxy
            )
            async with http:
                content = await self._content(http)
        except aiohttp.ClientPayloadError as error:
            cause = f"{self._name} dropped the connection in the middle of its answer: {error}"
            raise Disconnected(cause, begun=True, reused=False) from error
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            reason = getattr(error, "strerror", None) or error
            raise Failure("refused", f"cannot reach {self._name}: {reason}") from error
        except aiohttp.ClientError as error:
            cause = f"{self._name} dropped the connection before it answered: {error}"
            reused = isinstance(error, aiohttp.ServerDisconnectedError)
            raise Disconnected(cause, begun=False, reused=reused) from error
        reply = HttpReply(http.status, content, list(http.raw_headers))
        reply.connect_seconds = _connect_seconds.get()
        return reply

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    async def _content(self, http: aiohttp.ClientResponse) -> bytes:
        pieces, size = list[bytes](), 0
        async for piece in http.content.iter_chunked(_PIECE):
            pieces.append(piece)
            size += len(piece)
            if size > self._largest:
                raise Failure("too_large", f"the reply is larger than {self._largest:,} bytes")
        return b"".join(pieces)


class _Connector(aiohttp.TCPConnector):
    """Measures how long a request waits for a new connection. A reused connection takes no time."""

    async def _create_connection(self, *args: Any, **kwargs: Any) -> Any:
        began = perf_counter()
        connection = await super()._create_connection(*args, **kwargs)
        _connect_seconds.set(_connect_seconds.get() + perf_counter() - began)
        return connection
