"""Search results and pages as the model sees them."""

from __future__ import annotations

import re
from itertools import islice
from typing import Any

from ludus.environments.google_search.domains import domain_of
from ludus.environments.google_search.provider import Hit, Results

SNIPPET = WINDOW = 2_000
_CHARACTERS_A_WORD = 10
_WORD, _NOT_BLANK = re.compile(r"\w+"), re.compile(r"\S+")


def as_items(results: Results) -> dict[str, Any]:
    """Results in the form of Google's Custom Search, with only the fields that a reader needs."""
    return {"items": [_item(hit) for hit in results.hits]}


def as_text(results: Results) -> str:
    """Results as a text; if the service has its own answer, only that answer."""
    if results.answer is not None:
        return results.answer
    return "\n\n".join(_block(number, hit) for number, hit in enumerate(results.hits, start=1)) or "No results found."


def shortened(text: str, words: int) -> str:
    """The beginning of a page, up to a number of words, and of characters for scripts without spaces."""
    after = next(islice(_NOT_BLANK.finditer(text), words, None), None)
    end = min(after.start() if after else len(text), words * _CHARACTERS_A_WORD)
    return text if end >= len(text) else f"{text[:end].rstrip()} ..."


def both_ends(text: str, words: int) -> str:
    """A page shortened as the reference does: the first and the last 5,000 characters of a long page."""
    return f"{text[:5000]}...{text[-5000:]}" if len(text.split()) > words else text


def best_lines(url: str, text: str, query: str) -> str:
    """Numbered lines of a page, from just before the line with the most words of the query."""
    lines = text.splitlines()
    wanted = set(_WORD.findall(query.lower()))
    counts = [len(wanted.intersection(_WORD.findall(line.lower()))) for line in lines]
    best = max(range(len(lines)), key=counts.__getitem__, default=0)
    shown = "\n".join(f"L{number}: {line}" for number, line in enumerate(lines) if number >= max(0, best - 2))
    note = "\n[cut off: scroll_page shows the rest]" if len(shown) > WINDOW else ""
    return f"{url} ({len(lines)} lines), the best place for: {query}\n{shown[:WINDOW]}{note}"


def some_words(url: str, text: str, start: int, count: int) -> tuple[str, int]:
    """Some words of a page, and how many words the page has."""
    words = text.split()
    part = words[max(0, start) :][: max(0, count)]
    first = min(max(0, start), len(words))
    return f"{url}, words {first} to {first + len(part)} of {len(words)}\n{' '.join(part)}", len(words)


def _item(hit: Hit) -> dict[str, str]:
    return {"title": hit.title, "link": hit.url, "displayLink": domain_of(hit.url), "snippet": hit.snippet}


def _block(number: int, hit: Hit) -> str:
    lines = (" ".join(line.split()) for line in hit.snippet.splitlines())
    snippet = "\n".join(line for line in lines if line)
    if len(snippet) > SNIPPET:
        cut = snippet.rfind("\n", 0, SNIPPET)
        snippet = snippet[: cut if cut > 0 else SNIPPET]
    return f"[{number}] {hit.title} ({domain_of(hit.url)})\n{hit.url}\n{snippet}"
