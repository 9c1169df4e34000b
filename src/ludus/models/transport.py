"""HTTP to one or several endpoints of a model: retries and the choice of the next endpoint.

A call sends a request body unchanged and returns the reply. Errors that a retry can fix are retried, within the budget
of their kind and never past the call's deadline. Other connection errors are typed failures, and replies of other
statuses are returned. The time to connect is measured separately from the time to answer.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Literal, Protocol
from urllib.parse import urlsplit

import ludus
from ludus.errors import Failure, UserError, missing_extra
from ludus.http.client import Connections, Disconnected
from ludus.http.connecting import HttpProxy, proxy_of
from ludus.http.connection import REPLY_BYTES, HttpReply
from ludus.http.retries import Attempts, Retries
from ludus.model import Observer, ServerLoad
from ludus.models.pool import Endpoint, Pool
from ludus.models.server_metrics import read_server_load
from ludus.runtime.failure_kinds import kind_of
from ludus.runtime.urls import checked_url

_NO_DEADLINE = float("inf")

#: How long a server may take to report its load.
_LOAD_SECONDS = 2.0

#: An idle connection to a provider is reused for this long.
_KEPT_SECONDS = 30.0

_HEADERS = {
    "content-type": "application/json",
    "accept": "*/*",
    "accept-encoding": "gzip, deflate",
    "user-agent": f"ludus/{ludus.__version__}",
}


class HttpClient(Protocol):
    """An HTTP client for one server: `http.client.Connections`, or aiohttp behind the same two methods."""

    def request(
        self, method: str, path: str, body: bytes, headers: dict[str, str] | None = None
    ) -> Coroutine[Any, Any, HttpReply]:
        """Send a request and read the reply, of any status."""

    async def close(self) -> None:
        """Close the connections."""


@dataclass(frozen=True, slots=True)
class HttpOptions:
    """Which client to use, the largest reply in bytes after decompression, and the most connections per endpoint.

    `channels` says whether the endpoints may be servers of ours, which can carry many connections over one socket.
    """

    client: Literal["lean", "aiohttp"] = "lean"
    reply_bytes: int = REPLY_BYTES
    connections: int | None = None
    channels: bool = False


class Transport:
    """The connections to the endpoints of one model. Failures name the model by `name`."""

    def __init__(
        self, name: str, urls: list[str], headers: dict[str, str], retries: Retries, options: HttpOptions | None = None
    ) -> None:
        self.name, self._options = name, options or HttpOptions()
        for url in urls:
            if "@" in checked_url(url, "a model", "http://HOST:PORT/v1").netloc:
                raise UserError(
                    f"the URL of model {name} must not hold a password", "Put it into model.headers or into a key"
                )
            proxy = proxy_of(urlsplit(url))  # a proxy that cannot be used is an error before the first call
            if self._by_aiohttp(proxy):
                _require_aiohttp()
        self.pool = Pool([url if "?" in url else url.rstrip("/") for url in urls])
        self.retried: Counter[str] = Counter()
        self.waited = 0.0
        self.headers = headers
        self._retries = retries
        self._clients: dict[str, HttpClient] = {}

    async def stop(self) -> None:
        """Close the connections."""
        clients, self._clients = self._clients, {}
        for client in clients.values():
            await client.close()

    async def post(
        self,
        path: str,
        body: bytes,
        *,
        session: str | None = None,
        deadline: float | None = None,
        repeatable: bool = True,
        observer: Observer | None = None,
        headers: dict[str, str] | None = None,
    ) -> HttpReply:
        """Send one request, with retries. `repeatable` says that the request may be executed twice."""
        until = deadline if deadline is not None else _NO_DEADLINE
        attempts = Attempts(self._retries, deadline)
        while True:
            endpoint = self.pool.take(session, perf_counter())
            try:
                reply = await self._once(endpoint, path, body, until, observer, headers)
            except Failure as error:
                pause = self._pause(error, attempts, endpoint) if repeatable or error.kind == "refused" else None
                if pause is None:
                    raise
            else:
                budget = kind_of(f"http_{reply.status}").retried if reply.status != 200 else None
                if budget is None:
                    return reply
                if observer is not None and budget == "busy":
                    observer.pressed()
                pause = attempts.pause(budget, reply.header("retry-after"))
                if pause is None:
                    return reply
                self.retried[f"http_{reply.status}"] += 1
                if reply.status == 503 and self.pool.others_available(endpoint, perf_counter()):
                    pause = 0.0
            if pause:
                await asyncio.sleep(pause)

    def address(self, base: str, path: str) -> str:
        """The URL of an API path at an endpoint."""
        base, mark, query = base.partition("?")
        return f"{base.rstrip('/')}{path}{mark}{query}" if mark else base + path

    async def server_loads(self) -> list[ServerLoad | None]:
        """What each endpoint says about its load; None for one that says nothing in time."""
        endpoints = self.pool.endpoints
        for endpoint, load in zip(endpoints, await asyncio.gather(*map(self._load, endpoints)), strict=True):
            endpoint.load = load
        return [endpoint.load for endpoint in endpoints]

    async def _load(self, endpoint: Endpoint) -> ServerLoad | None:
        try:
            async with asyncio.timeout(_LOAD_SECONDS):
                reply = await self.ask(endpoint, "GET", "/metrics")
        except (Failure, TimeoutError, OSError):
            return None
        return read_server_load(reply.body.decode("utf-8", "replace")) if reply.status == 200 else None

    async def ask(self, endpoint: Endpoint, method: str, path: str, body: bytes = b"") -> HttpReply:
        """Ask an endpoint itself, and not its model: a route that is not below `/v1`."""
        client = self._clients.get(endpoint.url) or self._open(endpoint)
        base, _, key = endpoint.url.partition("?")
        path, _, query = path.partition("?")
        target = urlsplit(f"{base.rstrip('/').removesuffix('/v1')}{path}").path
        queries = "&".join(filter(None, (query, key)))
        return await client.request(method, f"{target}?{queries}" if queries else target, body)

    def stats(self) -> dict[str, Any]:
        """Endpoints, retries by kind, and the time spent connecting."""
        waited = round(self.waited, 6)
        return {"endpoints": self.pool.stats(), "retries": dict(self.retried), "connect_seconds": waited}

    async def _once(
        self,
        endpoint: Endpoint,
        path: str,
        body: bytes,
        until: float,
        observer: Observer | None,
        headers: dict[str, str] | None,
    ) -> HttpReply:
        """Try once, and record the result in the pool."""
        client = self._clients.get(endpoint.url) or self._open(endpoint)
        target = endpoint.targets.get(path)
        if target is None:
            parts = urlsplit(self.address(endpoint.url, path))
            target = endpoint.targets[path] = f"{parts.path}?{parts.query}" if parts.query else parts.path
        began = perf_counter()
        try:
            reply = await client.request("POST", target, body, headers)
        except Disconnected as error:
            if error.begun or error.reused:  # it may only have closed an idle connection; the retry will show
                self.pool.failed(endpoint)
            else:
                self.pool.unreachable(endpoint, perf_counter())
            raise
        except asyncio.CancelledError:
            self._record_cancel(endpoint, until, observer)
            raise
        except BaseException as error:
            if isinstance(error, Failure) and error.kind == "refused":
                self.pool.unreachable(endpoint, perf_counter())
            else:
                self.pool.failed(endpoint)
            raise
        now = perf_counter()
        seconds = now - began
        if reply.connect_seconds:
            seconds -= reply.connect_seconds
            self.waited += reply.connect_seconds
        if reply.status == 503 and self.pool.others_available(endpoint, now):  # it drains, or its proxy has lost it
            self.pool.unreachable(endpoint, now)
        else:
            self.pool.answered(endpoint, seconds)
        if observer is not None and reply.status == 200:
            observer.answered(seconds)
        return reply

    def _by_aiohttp(self, proxy: HttpProxy | None) -> bool:
        """Whether aiohttp asks: where the user wants it, and for proxies that only aiohttp speaks to."""
        return self._options.client == "aiohttp" or (proxy is not None and proxy.scheme != "http")

    def _open(self, endpoint: Endpoint) -> HttpClient:
        """The client for an endpoint."""
        parts, options = urlsplit(endpoint.url), self._options
        own = {header.lower() for header in self.headers}
        headers = {header: value for header, value in _HEADERS.items() if header not in own} | self.headers
        origin, proxy = f"{parts.scheme}://{parts.netloc}", proxy_of(parts)
        limits: dict[str, Any] = {"reply_bytes": options.reply_bytes, "limit": options.connections}
        if self._by_aiohttp(proxy):
            from ludus.models.aiohttp_client import AiohttpClient

            client: HttpClient = AiohttpClient(origin, headers, name=endpoint.name, proxy=proxy, **limits)
        else:
            limits |= {"kept_seconds": _KEPT_SECONDS, "channels": options.channels}
            client = Connections(origin, headers, name=endpoint.name, proxy=proxy, **limits)
        self._clients[endpoint.url] = client
        return client

    def _record_cancel(self, endpoint: Endpoint, until: float, observer: Observer | None) -> None:
        """Record a cancelled call. A call past its deadline counts against the endpoint, any other cancel does not."""
        now = perf_counter()
        if now < until - 0.05:
            self.pool.failed(endpoint)
            return
        self.pool.unreachable(endpoint, now)
        if observer is not None:
            observer.pressed()

    def _pause(self, error: Failure, attempts: Attempts, endpoint: Endpoint) -> float | None:
        """The pause before a retry after a connection error; None to give up."""
        budget: str | None = kind_of(error.kind).retried
        if budget is None:
            return None
        if error.kind == "refused":
            self.retried["refused"] += 1
            if self.pool.others_available(endpoint, perf_counter()):
                return 0.0
        else:
            if isinstance(error, Disconnected) and not error.begun:
                budget = "fresh"
            self.retried[budget] += 1
        return attempts.pause(budget)


def _require_aiohttp() -> None:
    try:
        import aiohttp  # noqa: F401
    except ModuleNotFoundError as error:
        raise missing_extra("aiohttp, which model.http or a proxy behind TLS needs,", "aiohttp") from error
