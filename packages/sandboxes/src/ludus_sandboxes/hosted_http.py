"""Requests to a sandbox service: deadlines, retries where these are safe, and one kind of error.

Whatever goes wrong here is a `SandboxError`: the service is to blame, never the program. A request that was refused
with 429, or never reached the service, is sent again. Others are sent again only if doing the work twice does no harm.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any
from urllib.parse import urlsplit

import orjson

from ludus.errors import Failure, UserError
from ludus.http.client import Connections
from ludus.http.connecting import proxy_of
from ludus.http.connection import HttpReply
from ludus.http.retries import Attempts, Retries
from ludus.runtime.failure_kinds import kind_of
from ludus.runtime.keys import header_value, without_keys_and_paths
from ludus.sandbox.protocol import SandboxError

#: The largest reply: a file of the size that `read` returns fits in, with the base64 around it.
_REPLY_BYTES = 64 << 20

_RETRIES = Retries(busy=3, server=3, dropped=3, first_pause=0.25, longest_pause=20.0)
_REPEATABLE = frozenset({"GET", "DELETE"})
#: Failures after which the service has certainly not done the work.
_NOT_DONE = ("http_429", "refused")


class Refused(SandboxError):
    """The service answered with an error status."""

    def __init__(self, cause: str, status: int) -> None:
        super().__init__(cause)
        self.status = status


class TooLarge(SandboxError):
    """The reply was larger than any reply may be."""


class Service:
    """One server of a service. Messages call it `name`. The headers, which hold the key, go with every request."""

    def __init__(self, name: str, url: str, headers: dict[str, str]) -> None:
        self.name = name
        checked = {header: header_value(value, f"the key of {name}") for header, value in headers.items()}
        proxy = proxy_of(urlsplit(url))
        self._connections = Connections(url, checked, name=name, proxy=proxy, reply_bytes=_REPLY_BYTES)

    async def json(self, method: str, path: str, content: Any = None, *, within: float = 60.0) -> dict[str, Any]:
        """Send and receive a JSON object."""
        body = b"" if content is None else orjson.dumps(content)
        reply = await self.send(method, path, body, {"content-type": "application/json"}, within=within)
        try:
            value = orjson.loads(reply.body)
        except orjson.JSONDecodeError:
            value = None
        if not isinstance(value, dict):
            raise SandboxError(f"{self.name} sent a reply that is not a JSON object: {reply.start()}")
        return value

    async def send(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None, *, within: float = 60.0
    ) -> HttpReply:
        """Send a request until it succeeds, at most `within` seconds. Raises `SandboxError`."""
        try:
            async with asyncio.timeout(within):
                return await self._tries(method, path, body, headers)
        except TimeoutError as error:
            raise SandboxError(f"{self.name} did not answer {method} within {within:g} s") from error

    async def close(self) -> None:
        """Close the connections."""
        await self._connections.close()

    async def _tries(self, method: str, path: str, body: bytes, headers: dict[str, str] | None) -> HttpReply:
        attempts = Attempts(_RETRIES)
        while True:
            retry_after = None
            try:
                reply = await self._connections.request(method, path, body, headers)
            except Failure as failure:
                error, kind = _sandbox_error(failure), failure.kind
            else:
                if reply.status < 300:
                    return reply
                error = Refused(f"{self.name} answered {reply.status} to {method}: {reply.start()}", reply.status)
                kind, retry_after = f"http_{reply.status}", reply.header("retry-after")
            budget = kind_of(kind).retried if method in _REPEATABLE or kind in _NOT_DONE else None
            pause = attempts.pause(budget, retry_after) if budget else None
            if pause is None:
                raise error
            await asyncio.sleep(pause)


def service_at(name: str, url: str, headers: dict[str, str]) -> Service:
    """A server whose address a service has sent."""
    try:
        return Service(name, url, headers)
    except UserError as error:
        raise SandboxError(f"{name} sent an address that cannot be used: {error}") from error


def _sandbox_error(failure: Failure) -> SandboxError:
    text = without_keys_and_paths(failure.cause)
    return TooLarge(text) if failure.kind == "too_large" else SandboxError(text)


def form_file(field: str, filename: str, data: bytes) -> tuple[bytes, dict[str, str]]:
    """The body and the headers of a form that uploads one file. The names are ours, never a program's."""
    boundary = f"ludus-{random.getrandbits(128):032x}"
    head = (
        f'--{boundary}\r\nContent-Disposition: form-data; name="{field}"; filename="{filename}"\r\n'
        "Content-Type: application/octet-stream\r\n\r\n"
    )
    body = head.encode() + data + f"\r\n--{boundary}--\r\n".encode()
    return body, {"content-type": f"multipart/form-data; boundary={boundary}"}
