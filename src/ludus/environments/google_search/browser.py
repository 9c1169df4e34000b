"""Fetch pages of the real web under limits, and extract their text in a child process that can be killed.

The model chose the page, so the model sees the reason if the page cannot be read. Every redirect is checked like the
first URL. There are no cookies, no proxy from the environment and no certificate exceptions.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Self

import aiohttp
from yarl import URL

from ludus.environments.google_search.addresses import EVERYWHERE, CheckedResolver, Forbidden, Reach
from ludus.environments.google_search.extraction import require_extraction, text_of
from ludus.environments.google_search.provider import no_html, no_text
from ludus.environments.google_search.settings import SearchConfig
from ludus.runtime.processes import in_process, shared_pool

_HOPS = 6
_MOVED = {301, 302, 303, 307, 308}
_HEADERS = {
    "Accept": "text/html,application/xhtml+xml,text/plain;q=0.9,*/*;q=0.1",
    "Accept-Encoding": "gzip",
    "User-Agent": "ludus",
}


class Browser:
    """Fetches pages and extracts their text.

    async with Browser() as browser:
        text = await browser.page("https://example.com")
    """

    def __init__(self, reach: Reach | None = None, *, seconds: float = 20.0, limit: int = 4 << 20) -> None:
        self._reach = reach or Reach()
        self._seconds = seconds
        self._limit = limit

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                resolver=CheckedResolver(self._reach), use_dns_cache=False, force_close=True, limit=64
            ),
            headers=_HEADERS,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
        )
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._session.close()

    async def page(self, url: str) -> str:
        """The text of a page. Raises `NoPage` with a reason that the model can read."""
        try:
            async with asyncio.timeout(self._seconds):
                body, encoding, content_type = await self._fetch(url)
        except TimeoutError:
            raise no_html(f"no answer after {self._seconds:g} s") from None
        except Forbidden as error:
            raise no_html(str(error)) from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise no_html(_reason(error)) from None
        try:
            text = await in_process(
                text_of, body, encoding, content_type, self._limit, timeout=60.0, cpu_seconds=self._seconds
            )
        except Exception as error:  # a page that crashes the extraction is an error for the model, not a failed rollout
            raise no_text(f"the page could not be read ({type(error).__name__})") from None
        if not text:
            raise no_text("the page holds no readable text")
        return text

    async def _fetch(self, url: str | URL) -> tuple[bytes, str, str]:
        """The raw body, its content encoding and its content type."""
        for _ in range(_HOPS):
            url = self._reach.url(url)
            async with self._session.get(url, allow_redirects=False) as reply:
                if reply.status in _MOVED and "Location" in reply.headers:
                    url = url.join(URL(reply.headers["Location"]))
                    continue
                if reply.status != 200:
                    raise no_html(f"the server answered {reply.status}")
                content_type = reply.headers.get("Content-Type", "text/html").lower()
                if not ("html" in content_type or content_type.startswith("text/")):
                    raise no_html(f"the page is {content_type.partition(';')[0]:.60}")
                encoding = reply.headers.get("Content-Encoding", "").lower()
                if encoding not in ("", "identity", "gzip", "x-gzip", "deflate"):
                    raise no_html(f"the page is packed as {encoding:.60}")
                return await self._read(reply), encoding, content_type
        raise no_html(f"more than {_HOPS - 1} redirects")

    async def _read(self, reply: aiohttp.ClientResponse) -> bytes:
        """The body up to the limit; the rest is not read."""
        body = bytearray()
        with suppress(aiohttp.ClientPayloadError):  # an interrupted page counts as far as it was received
            async for part in reply.content.iter_chunked(1 << 16):
                body += part
                if len(body) >= self._limit:
                    break
        return bytes(body[: self._limit])


@asynccontextmanager
async def open_browser(config: SearchConfig) -> AsyncIterator[Browser]:
    """A browser with the limits of the settings, and a warm process pool."""
    require_extraction()
    reach = replace(EVERYWHERE if config.allow_private_addresses else Reach(), excluded=config.excluded())
    browser = Browser(reach, seconds=config.page_timeout_seconds, limit=config.page_bytes)
    async with shared_pool(), browser:
        yield browser


def _reason(error: Exception) -> str:
    """The error for the model, without details of this machine."""
    if isinstance(error.__cause__, Forbidden):
        return str(error.__cause__)
    if isinstance(error.__cause__, socket.gaierror):
        return "the host is not known"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return "the server has no valid certificate"
    return f"the server cannot be reached ({type(error).__name__})"
