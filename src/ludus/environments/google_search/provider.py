"""The protocol of a search provider, and its results."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Protocol

from ludus.environments.google_search.settings import SearchConfig


@dataclass(frozen=True)
class Hit:
    """One result of a search."""

    title: str
    url: str
    snippet: str


@dataclass(frozen=True)
class Results:
    """The results of a search. `answer` is the service's own answer; `raw` is its whole response as JSON, if kept."""

    hits: list[Hit]
    answer: str | None = None
    raw: str | None = None


class NoPage(Exception):
    """A page cannot be read: `what` is missing, and why."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"{what}: {why}")
        self.what = what


def no_html(why: str) -> NoPage:
    """The page could not be fetched."""
    return NoPage("No HTML found", why)


def no_text(why: str) -> NoPage:
    """The fetched page has no readable text."""
    return NoPage("No text found", why)


class Provider(Protocol):
    """Finds pages and opens them. Implemented by `Local`, `Google`, `Json` and `Tavily`."""

    @classmethod
    def open(cls, config: SearchConfig) -> AbstractAsyncContextManager[Provider]:
        """Open a provider. Raises a `UserError` if a key is missing."""
        ...

    async def search(self, query: str) -> Results:
        """Pages that match a query, best first. Raises a `Failure` if the service does not work."""
        ...

    async def page(self, url: str) -> str:
        """The text of a page. Raises `NoPage` if it cannot be read."""
        ...
