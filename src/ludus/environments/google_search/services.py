"""Providers on the web. Their keys come from the environment or from `env.yaml`, and are never settings.

| provider | keys | pages |
| --- | --- | --- |
| `google` | `GOOGLE_API_KEY`, `GOOGLE_CX` | fetched by the browser |
| `json` | `SEARCH_API_KEY`, if the service needs one | fetched by the browser |
| `tavily` | `TAVILY_API_KEY`; several keys, separated by commas, are used in turn | read by the service |
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Self
from urllib.parse import quote

from ludus.environments.google_search.addresses import Forbidden, Reach
from ludus.environments.google_search.api import Api
from ludus.environments.google_search.browser import Browser, open_browser
from ludus.environments.google_search.provider import Hit, Results, no_html, no_text
from ludus.environments.google_search.settings import SearchConfig
from ludus.errors import Failure, UserError
from ludus.runtime.encoding import encode
from ludus.runtime.keys import look_up_key, redacted

_LONGEST = 400  # Tavily's limit for a query


class Google:
    """Google's Custom Search, version 1."""

    def __init__(self, api: Api, browser: Browser, url: str, fixed: dict[str, str]) -> None:
        self._api, self._browser, self._url, self._fixed = api, browser, url, fixed

    @classmethod
    @asynccontextmanager
    async def open(cls, config: SearchConfig) -> AsyncIterator[Self]:
        """Connect with `GOOGLE_API_KEY` and `GOOGLE_CX`."""
        fixed = {"key": _required("GOOGLE_API_KEY"), "cx": _required("GOOGLE_CX"), "num": str(config.results)}
        url = config.endpoint or "https://www.googleapis.com/customsearch/v1"
        async with _api("Google", config, fixed["key"], fixed["cx"]) as api, open_browser(config) as browser:
            yield cls(api, browser, url, fixed)

    async def search(self, query: str) -> Results:
        """Ask Google."""
        raw = await self._api.ask("GET", self._url, params={**self._fixed, "q": query})
        hits = _hits(raw.get("items", []), "title", "link", "snippet")
        return Results(hits, raw=redacted(encode(raw).decode(), self._fixed["key"], self._fixed["cx"]))

    async def page(self, url: str) -> str:
        """Fetch a page."""
        return await self._browser.page(url)


class Json:
    """Any service that answers a GET with JSON."""

    def __init__(self, api: Api, browser: Browser, config: SearchConfig, headers: dict[str, str]) -> None:
        self._api, self._browser, self._headers = api, browser, headers
        self._url, self._form, self._results = config.endpoint or "", config.json_api, config.results

    @classmethod
    @asynccontextmanager
    async def open(cls, config: SearchConfig) -> AsyncIterator[Self]:
        """Connect to the service that the settings describe."""
        if not config.endpoint:
            raise UserError("provider json needs the URL of a service", "Set it: --set resources.endpoint=URL")
        key, header = look_up_key("SEARCH_API_KEY"), config.json_api.key_header
        headers = {header: f"Bearer {key}" if header.lower() == "authorization" else key} if key else {}
        async with _api("the search service", config, key) as api, open_browser(config) as browser:
            yield cls(api, browser, config, headers)

    async def search(self, query: str) -> Results:
        """Ask the service."""
        form = self._form
        raw = await self._api.ask(
            "GET", self._url, params={**form.parameters, form.query: query}, headers=self._headers
        )
        entries: Any = raw
        for step in form.results.split("."):
            entries = entries.get(step) if isinstance(entries, dict) else None
        return Results(_hits(entries, form.title, form.url, form.snippet)[: self._results])

    async def page(self, url: str) -> str:
        """Fetch a page."""
        return await self._browser.page(url)


class Tavily:
    """Tavily's search; Tavily also reads the pages."""

    def __init__(self, api: Api, config: SearchConfig, keys: list[str]) -> None:
        self._api, self._results, self._excluded = api, config.results, sorted(config.excluded())
        self._url = (config.endpoint or "https://api.tavily.com").rstrip("/")
        self._keys = itertools.cycle(keys)

    @classmethod
    @asynccontextmanager
    async def open(cls, config: SearchConfig) -> AsyncIterator[Self]:
        """Connect with one key or several."""
        keys = [key.strip() for key in _required("TAVILY_API_KEY").split(",") if key.strip()]
        async with _api("Tavily", config, *keys) as api:
            yield cls(api, config, keys)

    async def search(self, query: str) -> Results:
        """Ask Tavily."""
        body = {"query": query[:_LONGEST], "max_results": self._results, "search_depth": "advanced"}
        raw = await self._ask("/search", body | {"exclude_domains": self._excluded})
        answer = raw.get("answer")
        hits = _hits(raw.get("results"), "title", "url", "content")
        return Results(hits, answer if isinstance(answer, str) and answer else None)

    async def page(self, url: str) -> str:
        """Let Tavily read a page."""
        try:
            checked = str(Reach().url(url))
            raw = await self._ask("/extract", {"urls": [checked], "extract_depth": "advanced"})
        except Forbidden as error:
            raise no_html(str(error)) from None
        except Failure as failure:
            if failure.kind not in ("http_400", "http_422"):  # these two concern the page that the model chose
                raise
            raise no_html("the page could not be opened") from None
        pages = raw.get("results")
        content = pages[0].get("raw_content") if isinstance(pages, list) and pages else None
        if not isinstance(content, str):
            raise no_html("the page could not be opened")
        if not content.strip():
            raise no_text("the page holds no readable text")
        return content.strip()

    async def _ask(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {next(self._keys)}"}
        return await self._api.ask("POST", self._url + path, json=body, headers=headers)


def _required(name: str) -> str:
    key = look_up_key(name)
    if not key:
        raise UserError(f"the search provider needs {name}", "Set it in the environment or in env.yaml")
    return key


def _api(name: str, config: SearchConfig, *secrets: str) -> Api:
    """A connection that redacts its keys, both plain and URL-encoded."""
    written = [form for secret in secrets for form in (secret, quote(secret), quote(secret, safe=""))]
    return Api(name, config.search_timeout_seconds, config.search_retries, *written)


def _hits(entries: Any, title: str, url: str, snippet: str) -> list[Hit]:
    """The results in a list; an entry without a URL is skipped."""
    if not isinstance(entries, list):
        raise Failure("bad_response", f"the search service answered with no list of results: {str(entries)[:100]}")
    valid = [entry for entry in entries if isinstance(entry, dict) and isinstance(entry.get(url), str)]
    return [Hit(str(entry.get(title) or entry[url]), entry[url], str(entry.get(snippet) or "")) for entry in valid]
