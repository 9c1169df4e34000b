"""HTTP to one or several endpoints of a model: connections, retries and who is asked next.

A request body goes out as it is, a status and a body come back. What can be mended by asking again is asked again,
within the budget of its kind and never past the call's deadline; what cannot is told as a typed failure or returned
for the caller to explain. Waiting for a connection is measured apart from waiting for the answer.
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

_waited: ContextVar[float] = ContextVar("waited", default=0.0)
_NO_DEADLINE = float("inf")
_LARGE = 1 << 20
_JSON = "application/json"
_JSON_HEADERS = CIMultiDict({"Content-Type": _JSON})


@dataclass(slots=True)
class Answer:
    """What came back, and how long the call waited for a connection. The two headers are read where it went wrong."""

    status: int
    content: bytes
    retry_after: str | None = None
    location: str | None = None
    waited: float = 0.0


class Transport:
    """A session to the endpoints of one model. `name` is how failures call it."""

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
        """Open the connection pool. It has no limit of its own: the collector bounds what is in flight."""
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
    ) -> Answer:
        """Send one request until it is answered or cannot be. `repeatable` says that doing it twice does no harm."""
        until = deadline if deadline is not None else _NO_DEADLINE
        tries: dict[str, int] = {}
        while True:
            endpoint = self.pool.take(session, perf_counter())
            try:
                answer = await self._once(endpoint, path, body, until, observer)
            except aiohttp.ClientError as error:
                kind, safe = _kind(error)
                pause = self._pause(kind, tries, until, endpoint) if safe or repeatable else None
                if pause is None:
                    raise self._failure(error, endpoint) from error
            else:
                later = LATER.get(answer.status) if answer.status != 200 else None
                if later is None:
                    return answer
                if observer is not None and later == "busy":
                    observer.pressed()
                told = _seconds(answer.retry_after)
                pause = self._retries.pause(later, _count(tries, later), told, until - perf_counter())
                if pause is None:
                    return answer
                self.retried[f"http_{answer.status}"] += 1
            if pause:
                await asyncio.sleep(pause)

    def address(self, base: str, path: str) -> str:
        """Where a path of the API is found at an endpoint."""
        base, mark, query = base.partition("?")
        return f"{base.rstrip('/')}{path}{mark}{query}" if mark else base + path

    def stats(self) -> dict[str, Any]:
        """Endpoints, retries by kind, and the time spent waiting for connections."""
        waited = round(self.waited, 6)
        return {"endpoints": self.pool.stats(), "retries": dict(self.retried), "connect_seconds": waited}

    async def _once(
        self, endpoint: Endpoint, path: str, body: bytes, until: float, observer: Observer | None
    ) -> Answer:
        """One try. Whatever happens, the pool learns how it went."""
        if self._session is None:
            await self.start()
        assert self._session is not None
        url = endpoint.addresses.get(path)
        if url is None:
            url = endpoint.addresses[path] = URL(self.address(endpoint.url, path))
        began = perf_counter()
        try:
            reply = await self._session.post(url, data=_payload(body), allow_redirects=False)
            # What is all here is taken as it is. Read to its end, a reply has let go of the connection.
            content = reply.content.read_nowait() if reply.content.is_eof() else await reply.read()
            answer = Answer(reply.status, content)
            if answer.status != 200:
                answer.retry_after, answer.location = map(reply.headers.get, ("Retry-After", "Location"))
        except aiohttp.ClientPayloadError:
            self.pool.failed(endpoint)
            raise
        except aiohttp.ServerDisconnectedError:
            self.pool.failed(endpoint)  # most likely an idle connection that it closed: asking again will tell
            raise
        except aiohttp.ClientError:
            self.pool.unreachable(endpoint, perf_counter())
            raise
        except asyncio.CancelledError:
            self._given_up(endpoint, until, observer)
            raise
        except BaseException:
            self.pool.failed(endpoint)
            raise
        seconds = perf_counter() - began
        if waited := _waited.get():
            _waited.set(0.0)
            answer.waited = waited
            seconds -= waited
            self.waited += waited
        self.pool.answered(endpoint, seconds)
        if observer is not None and answer.status == 200:
            observer.answered(seconds)
        return answer

    def _given_up(self, endpoint: Endpoint, until: float, observer: Observer | None) -> None:
        """A call was cancelled: by its deadline, which speaks against the endpoint, or for reasons of the caller's."""
        now = perf_counter()
        if now < until - 0.05:
            self.pool.failed(endpoint)
            return
        self.pool.unreachable(endpoint, now)
        if observer is not None:
            observer.pressed()

    def _pause(self, kind: str, tries: dict[str, int], until: float, endpoint: Endpoint) -> float | None:
        """How long to pause after a connection failed; None when it is to be told as a failure."""
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
            return Failure("disconnected", f"{self.name} broke off in the middle of its answer")
        return Failure("disconnected", f"{self.name} dropped the connection before it answered: {error}")


class _Connector(aiohttp.TCPConnector):
    """A connector that notes how long a request waited for a new connection; one that is kept alive costs nothing."""

    async def _create_connection(self, *args: Any, **kwargs: Any) -> Any:
        began = perf_counter()
        connection = await super()._create_connection(*args, **kwargs)
        _waited.set(_waited.get() + perf_counter() - began)
        return connection


class _Body(aiohttp.BytesPayload):
    """JSON to send. What aiohttp makes of bytes by itself has headers of its own, at four times the price."""

    def __init__(self, content: bytes) -> None:
        self._value, self._size, self._headers = content, len(content), _JSON_HEADERS


def _payload(body: bytes) -> aiohttp.Payload:
    if len(body) < _LARGE:
        return _Body(body)
    return aiohttp.BytesIOPayload(io.BytesIO(body), content_type=_JSON)  # which is sent in pieces


def _kind(error: aiohttp.ClientError) -> tuple[str, bool]:
    """The budget that an error is charged to, and whether the request surely was not carried out."""
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
        return "refused", True
    if isinstance(error, aiohttp.ServerDisconnectedError | aiohttp.ClientOSError):
        return "fresh", False
    return "dropped", False


def _count(tries: dict[str, int], kind: str) -> int:
    tries[kind] = tries.get(kind, 0) + 1
    return tries[kind]


def _seconds(header: str | None) -> float | None:
    """Retry-After in seconds, whether the server told a number of them or a date."""
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
