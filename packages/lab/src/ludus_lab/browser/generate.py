"""Endless rows: a page and a seed for its problem."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from ludus.errors import UserError, did_you_mean
from ludus_lab.browser.pages import PAGES

INSTRUCTION = (
    "You use a small web page, 160 pixels wide and 210 high. Its first line says what to do. Call look to read it, and "
    "act with the other tools; each of them answers with the page as it is then. When you have done what the page "
    "asks, say so."
)


def stream(seed: int, *, page: str = "") -> Iterator[dict[str, Any]]:
    """Rows of one page, by default of all pages in turn."""
    if page and page not in PAGES:
        raise UserError(f"data.page {page!r:.60} is not a page", did_you_mean(page, PAGES))
    generator = random.Random(seed)
    while True:
        for name in [page] if page else PAGES:
            yield row(name, generator.getrandbits(31))


def row(page: str, seed: int) -> dict[str, Any]:
    """One row."""
    prompt = [{"role": "system", "content": INSTRUCTION}, {"role": "user", "content": "Begin."}]
    return {"responses_create_params": {"input": prompt}, "page": page, "seed": seed}
