"""What a provider is: somebody who finds pages and opens them."""

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
    """What a search found. `answer` is the service's own; `raw` is all that it said, as JSON, where that is kept."""

    hits: list[Hit]
    answer: str | None = None
    raw: str | None = None


class NoPage(Exception):
    """There is nothing to read at an address: `what` is missing, and why."""

    def __init__(self, what: str, why: str) -> None:
        super().__init__(f"{what}: {why}")
        self.what = what


def no_html(why: str) -> NoPage:
    """Nothing could be fetched."""
    return NoPage("No HTML found", why)


def no_text(why: str) -> NoPage:
    """What was fetched holds nothing to read."""
    return NoPage("No text found", why)


class Provider(Protocol):
    """Finds pages and opens them. `Local`, `Google`, `Json` and `Tavily` do."""

    @classmethod
    def open(cls, config: SearchConfig) -> AbstractAsyncContextManager[Provider]:
        """A provider for as long as the context lasts. A key that is missing is said before anything runs."""
        ...

    async def search(self, query: str) -> Results:
        """Pages that fit a query, the best first. Raises a `Failure` when the service does not work."""
        ...

    async def page(self, url: str) -> str:
        """The text of a page. Raises `NoPage` when there is none."""
        ...
