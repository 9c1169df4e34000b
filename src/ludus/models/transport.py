"""HTTP to one or several endpoints of a model: connections, retries and the choice of the next endpoint.

A call sends a request body unchanged and returns a status and a body. Errors that a retry can fix are retried, within
the budget of their kind and never past the call's deadline. Other connection errors become a typed failure, and other
statuses are returned. The time to connect is measured separately from the time to answer.
"""

from __future__ import annotations

import asyncio
import io
from collections import Counter
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from time import perf_counter, time
from typing import Any

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from ludus.errors import Failure, UserError
from ludus.model import Observer
from ludus.models.pool import Endpoint, Pool
from ludus.models.retry import LATER, Retries
from ludus.runtime.urls import checked_url

_connect_seconds: ContextVar[float] = ContextVar("connect_seconds", default=0.0)
_NO_DEADLINE = float("inf")
_LARGE_BODY = 1 << 20
_JSON = "application/json"
_JSON_HEADERS = CIMultiDict({"Content-Type": _JSON})


@dataclass(slots=True)
class ProviderReply:
    """A provider's reply and the time spent connecting. The two headers are read only if the status is not 200."""

    status: int
    content: bytes
    retry_after: str | None = None
    location: str | None = None
    waited: float = 0.0


class Transport:
    """An HTTP session to the endpoints of one model. Failures name the model by `name`."""

    def __init__(self, name: str, urls: list[str], headers: dict[str, str], retries: Retries) -> None:
        self.name = name
        for url in urls:
            if "@" in checked_url(url, "a model", "http://HOST:PORT/v1").netloc:
                raise UserError(
                    f"the URL of model {name} must not hold a password", "Put it into model.headers or into a key"
                )
        self.pool = Pool([url if "?" in url else url.rstrip("/") for url in urls])
        self.retried: Counter[str] = Counter()
        self.waited = 0.0
        self.headers = headers
        self._retries = retries
        self._session: aiohttp.ClientSession | None = None

    async def start(self) -> None:
        """Open the connection pool. It has no limit: the collector limits the requests in flight."""
        self._session = aiohttp.ClientSession(
            connector=_Connector(limit=0, keepalive_timeout=30),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=30),
            headers=self.headers,
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def stop(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def post(
        self,
        path: str,
        body: bytes,
        *,
        session: str | None = None,
        deadline: float | None = None,
        repeatable: bool = True,
        observer: Observer | None = None,
    ) -> ProviderReply:
        """Send one request, with retries. `repeatable` says that the request may be executed twice."""
        until = deadline if deadline is not None else _NO_DEADLINE
        tries: dict[str, int] = {}
        while True:
            endpoint = self.pool.take(session, perf_counter())
            try:
                reply = await self._once(endpoint, path, body, until, observer)
            except aiohttp.ClientError as error:
                kind, safe = _kind(error)
                pause = self._pause(kind, tries, until, endpoint) if safe or repeatable else None
                if pause is None:
                    raise self._failure(error, endpoint) from error
            else:
                budget = LATER.get(reply.status) if reply.status != 200 else None
                if budget is None:
                    return reply
                if observer is not None and budget == "busy":
                    observer.pressed()
                retry_after = _seconds(reply.retry_after)
                pause = self._retries.pause(budget, _count(tries, budget), retry_after, until - perf_counter())
                if pause is None:
                    return reply
                self.retried[f"http_{reply.status}"] += 1
            if pause:
                await asyncio.sleep(pause)

    def address(self, base: str, path: str) -> str:
        """The URL of an API path at an endpoint."""
        base, mark, query = base.partition("?")
        return f"{base.rstrip('/')}{path}{mark}{query}" if mark else base + path

    def stats(self) -> dict[str, Any]:
        """Endpoints, retries by kind, and the time spent connecting."""
        waited = round(self.waited, 6)
        return {"endpoints": self.pool.stats(), "retries": dict(self.retried), "connect_seconds": waited}

    async def _once(
        self, endpoint: Endpoint, path: str, body: bytes, until: float, observer: Observer | None
    ) -> ProviderReply:
        """Try once, and record the result in the pool."""
        if self._session is None:
            await self.start()
        assert self._session is not None
        url = endpoint.addresses.get(path)
        if url is None:
            url = endpoint.addresses[path] = URL(self.address(endpoint.url, path))
        began = perf_counter()
        try:
            http = await self._session.post(url, data=_payload(body), allow_redirects=False)
            # A body that has arrived completely is read without an await, and its connection is free already.
            content = http.content.read_nowait() if http.content.is_eof() else await http.read()
            reply = ProviderReply(http.status, content)
            if reply.status != 200:
                reply.retry_after, reply.location = map(http.headers.get, ("Retry-After", "Location"))
        except aiohttp.ClientPayloadError:
            self.pool.failed(endpoint)
            raise
        except aiohttp.ServerDisconnectedError:
            self.pool.failed(endpoint)  # most likely it closed an idle connection; the retry will show
            raise
        except aiohttp.ClientError:
            self.pool.unreachable(endpoint, perf_counter())
            raise
        except asyncio.CancelledError:
            self._record_cancel(endpoint, until, observer)
            raise
        except BaseException:
            self.pool.failed(endpoint)
            raise
        seconds = perf_counter() - began
        if waited := _connect_seconds.get():
            _connect_seconds.set(0.0)
            reply.waited = waited
            seconds -= waited
            self.waited += waited
        self.pool.answered(endpoint, seconds)
        if observer is not None and reply.status == 200:
            observer.answered(seconds)
        return reply

    def _record_cancel(self, endpoint: Endpoint, until: float, observer: Observer | None) -> None:
        """Record a cancelled call. A call past its deadline counts against the endpoint, any other cancel does not."""
        now = perf_counter()
        if now < until - 0.05:
            self.pool.failed(endpoint)
            return
        self.pool.unreachable(endpoint, now)
        if observer is not None:
            observer.pressed()

    def _pause(self, kind: str, tries: dict[str, int], until: float, endpoint: Endpoint) -> float | None:
        """The pause before a retry after a connection error; None to give up."""
        now = perf_counter()
        self.retried[kind] += 1
        if kind == "refused":
            if self.pool.others_available(endpoint, now):
                return 0.0
            kind = "dropped"
        return self._retries.pause(kind, _count(tries, kind), None, until - now)

    def _failure(self, error: Exception, endpoint: Endpoint) -> Failure:
        if isinstance(error, aiohttp.ClientConnectorError):
            return Failure("refused", f"cannot reach {endpoint.name}: {error.strerror or error}")
        if isinstance(error, aiohttp.ClientPayloadError):
            return Failure("disconnected", f"{self.name} closed the connection in the middle of its answer")
        return Failure("disconnected", f"{self.name} dropped the connection before it answered: {error}")


class _Connector(aiohttp.TCPConnector):
    """Measures how long a request waits for a new connection. A reused connection takes no time."""

    async def _create_connection(self, *args: Any, **kwargs: Any) -> Any:
        began = perf_counter()
        connection = await super()._create_connection(*args, **kwargs)
        _connect_seconds.set(_connect_seconds.get() + perf_counter() - began)
        return connection


class _Body(aiohttp.BytesPayload):
    """A JSON request body with shared headers: four times cheaper than the payload that aiohttp makes of bytes."""

    def __init__(self, content: bytes) -> None:
        self._value, self._size, self._headers = content, len(content), _JSON_HEADERS


def _payload(body: bytes) -> aiohttp.Payload:
    if len(body) < _LARGE_BODY:
        return _Body(body)
    return aiohttp.BytesIOPayload(io.BytesIO(body), content_type=_JSON)  # sent in chunks


def _kind(error: aiohttp.ClientError) -> tuple[str, bool]:
    """The retry budget of an error, and whether the server certainly did not execute the request."""
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
        return "refused", True
    if isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientOSError):
        return "fresh", False
    return "dropped", False


def _count(tries: dict[str, int], kind: str) -> int:
    tries[kind] = tries.get(kind, 0) + 1
    return tries[kind]


def _seconds(header: str | None) -> float | None:
    """Retry-After in seconds. The header holds a number of seconds or a date."""
    if not header:
        return None
    try:
        return max(0.0, float(header))
    except ValueError:
        pass
    try:
        when = parsedate_to_datetime(header)
    except ValueError:
        return None
    return max(0.0, when.replace(tzinfo=when.tzinfo or UTC).timestamp() - time())
