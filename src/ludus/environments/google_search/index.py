"""A full-text index: SQLite's FTS5, with BM25 ranking and snippets, in a file that many threads can read.

A model's query never reaches the engine's query language: only its words are used, each in quotation marks that a word
cannot contain. A query ranks a bounded number of documents, however large the corpus is. Ranking costs about two
microseconds per matching document, so rare words choose the candidates, and common words only order them.
"""

from __future__ import annotations

import re
import sqlite3
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from hashlib import blake2b
from itertools import islice
from pathlib import Path

from ludus.environments.google_search.corpus import Document
from ludus.environments.google_search.provider import Hit
from ludus.errors import UserError

#: How many documents one query ranks, and how many index entries it reads to find the rare words.
CANDIDATES, ENTRIES = 1_000, 8_000
WORDS = 32
_LONGEST = 2_000
_FORMAT = 1  # part of a kept index's digest: raise it when the tables below change
_WORD = re.compile(r"(?:[^\W_]|[\u0300-\u036f])+")  # letters and digits, and combining accents
_TABLES = """
    PRAGMA page_size = 8192;
    PRAGMA journal_mode = OFF;
    PRAGMA synchronous = OFF;
    PRAGMA cache_size = -65536;
    CREATE VIRTUAL TABLE documents USING fts5(title, body, tokenize = "porter unicode61 remove_diacritics 2");
    CREATE TABLE addresses (id INTEGER PRIMARY KEY, url TEXT NOT NULL UNIQUE);
"""
_TITLE_WEIGHT = 4.0
_RANKED = f"""
    SELECT id FROM (
        SELECT rowid AS id, bm25(documents, {_TITLE_WEIGHT}, 1.0) AS score
        FROM documents WHERE documents MATCH ? LIMIT ?
    ) ORDER BY score, id LIMIT ?
"""
_SHOWN = """
    SELECT title, addresses.url, snippet(documents, 1, '', '', ' ... ', 48)
    FROM documents JOIN addresses ON addresses.id = documents.rowid
    WHERE documents MATCH ? AND documents.rowid = ?
"""
_PAGE = """
    SELECT addresses.url, title, body FROM addresses JOIN documents ON documents.rowid = addresses.id
    WHERE addresses.url = ?
"""
_COUNT = "SELECT count(*) FROM (SELECT 1 FROM documents WHERE documents MATCH ? LIMIT ?)"


class Index:
    """An open index file. Thread-safe; every call blocks its thread.

    index = Index.build(path, documents)
    index.search("who keeps the lighthouse", 10)
    """

    def __init__(self, path: Path) -> None:
        self._uri = f"{path.resolve().as_uri()}?mode=ro&immutable=1"
        self._idle: list[sqlite3.Connection] = []
        self._lock = threading.Lock()
        self._closed = False
        self._documents_with = lru_cache(maxsize=65_536)(self._count)
        try:
            with self._connection() as connection:
                (self.size,) = connection.execute("SELECT count(*) FROM addresses").fetchone()
        except sqlite3.DatabaseError as error:
            self.close()
            raise UserError(f"{path} is not an index: {error}", "Delete it to build the index again") from error

    @classmethod
    def build(cls, path: Path, documents: Iterable[Document]) -> Index:
        """Index documents in a new file."""
        connection = sqlite3.connect(path, isolation_level=None)
        try:
            _fill(connection, documents)
        except sqlite3.IntegrityError as error:
            raise UserError("two documents of the corpus have the same url", "Use unique URLs, or no url") from error
        except sqlite3.OperationalError as error:
            raise UserError(f"cannot index the corpus: {error}") from error
        finally:
            connection.close()
        return cls(path)

    def search(self, query: str, limit: int) -> list[Hit]:
        """The documents that match a query best, best first."""
        rows, expression = [], ""
        with self._connection() as connection:
            for expression in self._expressions(query):
                rows = connection.execute(_RANKED, (expression, CANDIDATES, limit)).fetchall()
                if len(rows) == limit:
                    break
            return [Hit(*connection.execute(_SHOWN, (expression, row[0])).fetchone()) for row in rows]

    def page(self, url: str) -> Document | None:
        """The document with this URL, or None."""
        with self._connection() as connection:
            row = connection.execute(_PAGE, (url.encode("utf-8", "replace").decode(),)).fetchone()
        return Document(*row) if row is not None else None

    def close(self) -> None:
        """Close the connections; a connection in use is closed when its call ends."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _expressions(self, query: str) -> Iterator[str]:
        """Queries for the engine, to try in order until one finds enough documents."""
        words = self._weighed(query)
        if words and words[0][0] > CANDIDATES:  # all words are common: prefer documents that hold two of them
            rarest = [word for count, word in words[:2] if count <= ENTRIES]
            yield from [" AND ".join(rarest)] if len(rarest) == 2 else []
            yield words[0][1]
            return
        choosing, ordering, entries = [], [], 0
        for count, word in words:
            entries += count
            if entries <= CANDIDATES:
                choosing.append(word)
            elif entries <= ENTRIES:
                ordering.append(word)
        if ordering:
            yield f"({' OR '.join(choosing)}) AND ({' OR '.join(choosing + ordering)})"
        elif choosing:
            yield " OR ".join(choosing)

    def _weighed(self, query: str) -> list[tuple[int, str]]:
        """The words of a query that the index contains, rarest first, each with its number of documents."""
        words = dict.fromkeys(f'"{match[0].lower()}"' for match in islice(_WORD.finditer(query[:_LONGEST]), WORDS))
        weighed = sorted((self._documents_with(word), word) for word in words)
        return [(count, word) for count, word in weighed if count]

    def _count(self, word: str) -> int:
        """In how many documents a word is, counted up to ENTRIES + 1."""
        with self._connection() as connection:
            (count,) = connection.execute(_COUNT, (word, ENTRIES + 1)).fetchone()
        return int(count)

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        connection = connection or sqlite3.connect(self._uri, uri=True, check_same_thread=False)
        try:
            yield connection
        finally:
            with self._lock:
                keep = not self._closed
                if keep:
                    self._idle.append(connection)
            if not keep:
                connection.close()


def digest(documents: Iterable[Document]) -> str:
    """A digest of the corpus, which names its kept index."""
    content = blake2b(bytes([_FORMAT]), digest_size=16)
    for document in documents:
        for part in document:
            data = part.encode("utf-8", "replace")
            content.update(len(data).to_bytes(8, "big"))
            content.update(data)
    return content.hexdigest()


def _fill(connection: sqlite3.Connection, documents: Iterable[Document]) -> None:
    connection.executescript(_TABLES)
    connection.execute("BEGIN")
    number = 0
    for number, document in enumerate(documents, start=1):
        url, title, text = (part.encode("utf-8", "replace").decode() for part in document)
        connection.execute("INSERT INTO addresses VALUES (?, ?)", (number, url))
        connection.execute("INSERT INTO documents (rowid, title, body) VALUES (?, ?, ?)", (number, title, text))
    if not number:
        raise UserError("the corpus holds no documents")
    connection.execute("COMMIT")
    connection.execute("INSERT INTO documents (documents) VALUES ('optimize')")
