"""A server's reply, with what code for aiohttp's `ClientResponse` asks for."""

from __future__ import annotations

from collections.abc import Awaitable, Generator
from http import HTTPStatus
from http.cookies import SimpleCookie
from typing import Any

import orjson

from ludus.http.connection import HttpReply
from nemo_gym._errors import response_error


class Body(bytes):
    """The body of a reply, which code for aiohttp reads with `await reply.content.read()`."""

    async def read(self) -> bytes:
        """All of it."""
        return bytes(self)


class _Nothing:
    """An awaitable that is done, and does not complain if nobody awaits it."""

    def __await__(self) -> Generator[Any, None, None]:
        yield from ()


class ServerReply:
    """A server's reply. Its body has arrived, so it can be read in any event loop.

    It offers what code for aiohttp's `ClientResponse` asks for.
    """

    def __init__(self, url: str, reply: HttpReply) -> None:
        self.url = url
        self.status = reply.status
        self.content = Body(reply.body)
        self.headers = _header_mapping(reply)
        self.cookies: SimpleCookie = SimpleCookie()
        for header in reply.all("set-cookie"):
            self.cookies.load(header)

    @property
    def ok(self) -> bool:
        """Whether the status is below 400."""
        return self.status < 400

    @property
    def reason(self) -> str:
        """The phrase of the status."""
        return HTTPStatus(self.status).phrase if self.status in set(HTTPStatus) else ""

    @property
    def content_type(self) -> str:
        """The type in the headers, without its parameters."""
        return str(self.headers.get("content-type", "application/octet-stream")).partition(";")[0].strip()

    async def json(self, **options: Any) -> Any:
        """The body's JSON value, whatever its content type. The options of aiohttp change nothing."""
        return orjson.loads(bytes(self.content))

    async def text(self, encoding: str | None = None, errors: str = "replace") -> str:
        """The body as text."""
        return self.content.decode(encoding or "utf-8", errors)

    async def read(self) -> bytes:
        """The body."""
        return bytes(self.content)

    def release(self) -> Awaitable[None]:
        """Do nothing: the body has arrived, and the connection is free. The result may be awaited, or not."""
        return _Nothing()

    def close(self) -> None:
        """Do nothing, like `release`."""

    async def __aenter__(self) -> ServerReply:
        return self

    async def __aexit__(self, *error: object) -> None:
        self.release()

    def raise_for_status(self) -> None:
        """Raise an error with `status` and `response_content` if the status is 400 or more."""
        if not self.ok:
            raise response_error(self.status, bytes(self.content))


def _header_mapping(reply: HttpReply) -> Any:
    """The headers of a reply: aiohttp's mapping, which ignores case and keeps duplicates, if aiohttp is installed."""
    pairs = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in reply.headers]
    try:
        from multidict import CIMultiDict
    except ModuleNotFoundError:
        return {name.lower(): value for name, value in pairs}
    return CIMultiDict(pairs)
