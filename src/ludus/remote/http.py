"""A client for our servers, and for others that speak like them: one request, one reply, failures typed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import orjson
from yarl import URL

from ludus.outcome import Failure
from ludus.secrets import public, secret

SESSION = "x-ludus-session"
SEED = "x-ludus-seed"
ROLLOUT = "x-ludus-rollout"
LAST = "x-ludus-last"


class Reply:
    """What came back."""

    __slots__ = ("body", "headers", "status")

    def __init__(self, status: int, body: bytes, headers: Any) -> None:
        self.status = status
        self.body = body
        self.headers = headers

    def json(self) -> Any:
        """The body as JSON, or a typed failure."""
        try:
            return orjson.loads(self.body)
        except orjson.JSONDecodeError as error:
            raise Failure("bad_response", f"the server sent no JSON: {_start(self.body)}") from error


class Client:
    """Connections to one server. It never asks twice: what it asks for may have been done already."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self.url = url.rstrip("/")
        self._session = session
        self._known: dict[str, URL] = {}

    async def post(self, path: str, body: bytes, headers: dict[str, str] | None = None) -> Reply:
        """Send one request and read its reply, whatever its status."""
        url = self._known.get(path)
        if url is None:
            url = self._known[path] = URL(self.url + path, encoded=True)
        return await self._send("POST", url, body, headers)

    async def get(self, path: str) -> Reply:
        """Fetch something."""
        return await self._send("GET", URL(self.url + path), None, None)

    async def _send(self, method: str, url: URL, body: bytes | None, headers: dict[str, str] | None) -> Reply:
        try:
            reply = await self._session.request(method, url, data=body, headers=headers, allow_redirects=False)
            return Reply(reply.status, await reply.read(), reply.headers)  # reading it to its end lets go of it
        except aiohttp.ClientConnectorError as error:
            raise Failure("refused", f"cannot reach {self.url}: {error.strerror or error}") from error
        except aiohttp.ClientError as error:
            raise Failure("disconnected", f"{self.url} dropped the connection: {type(error).__name__}") from error

    def checked(self, reply: Reply) -> Any:
        """The JSON of a reply that went well; a reply that did not is the failure that it tells of."""
        if reply.status == 200:
            return reply.json()
        raise self.failure(reply)

    def failure(self, reply: Reply) -> Failure:
        """What a server said went wrong."""
        try:
            told = orjson.loads(reply.body)
        except orjson.JSONDecodeError:
            told = None
        if isinstance(told, dict) and isinstance(told.get("kind"), str):
            stage = told.get("stage")
            known = stage if stage in ("open", "model", "tool", "verify", "close", "agent") else None
            return Failure(told["kind"], public(str(told.get("detail"))), stage=known)
        return Failure(f"http_{reply.status}", f"{self.url} answered {reply.status}: {_start(reply.body)}")


@asynccontextmanager
async def connect(url: str, token_env: str) -> AsyncIterator[Client]:
    """A client for a server while it is entered. The token comes from the environment, where there is one."""
    token = secret(token_env)
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=30),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=30),
        cookie_jar=aiohttp.DummyCookieJar(),
        headers=headers,
    ) as session:
        yield Client(url, session)


def _start(body: bytes) -> str:
    return public(" ".join(body[:300].decode("utf-8", "replace").split()))
