"""The provider without key and network: a corpus, indexed at startup or read from a kept index."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self

from ludus.environments.google_search.corpus import read_corpus
from ludus.environments.google_search.index import Index, digest
from ludus.environments.google_search.provider import Results, no_html
from ludus.environments.google_search.settings import SearchConfig
from ludus.errors import UserError
from ludus.runtime.threads import in_thread


class Local:
    """Searches a corpus and opens only its documents."""

    def __init__(self, index: Index, results: int = 10) -> None:
        self._index = index
        self._results = results
        self._slots = asyncio.Semaphore(os.cpu_count() or 1)

    @classmethod
    @asynccontextmanager
    async def open(cls, config: SearchConfig) -> AsyncIterator[Self]:
        """Index the corpus, or open its kept index."""
        with tempfile.TemporaryDirectory(prefix="ludus-search-") as temporary:
            index = await in_thread(_open_index, config, Path(temporary))
            try:
                yield cls(index, config.results)
            finally:
                index.close()

    async def search(self, query: str) -> Results:
        """Documents that match a query, best first."""
        async with self._slots:
            return Results(await in_thread(self._index.search, query, self._results))

    async def page(self, url: str) -> str:
        """The title and the text of a document."""
        async with self._slots:
            document = await in_thread(self._index.page, url.strip().partition("#")[0])
        if document is None:
            raise no_html("there is no such page")
        return f"{document.title}\n\n{document.text}".strip()


def _open_index(config: SearchConfig, temporary: Path) -> Index:
    """The index of the corpus: new in a temporary folder, or kept in `index_folder`."""
    corpus, folder = config.corpus, config.index_folder
    if folder is None:
        return Index.build(temporary / "index", read_corpus(corpus))
    path = folder / f"{digest(read_corpus(corpus))}.sqlite3"
    if not path.exists():
        unfinished = path.with_suffix(f".{os.getpid()}")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            unfinished.unlink(missing_ok=True)
            Index.build(unfinished, read_corpus(corpus)).close()
            unfinished.replace(path)  # another process may have written the same file: the content is equal
        except OSError as error:
            raise UserError(f"cannot keep an index in {folder}: {error.strerror}") from error
        finally:
            unfinished.unlink(missing_ok=True)
    return Index(path)
