"""Search over passages: by words (BM25), by meaning (embeddings of wordllama), or by both."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from ludus_lab.needs import require
from ludus_lab.retrieval.corpus import Document, Passage, read_corpus

Ranking = Literal["bm25", "embeddings", "both"]

#: Characters of a query that count.
LONGEST_QUERY = 500

_TOKEN = re.compile(r"[a-z0-9_]+")


class Words:
    """BM25: passages that have the rare words of the query often, the short ones first."""

    _K, _B = 1.2, 0.75

    def __init__(self, passages: list[Passage]) -> None:
        counts = [Counter(_tokens(passage.text)) for passage in passages]
        self._lengths = [sum(count.values()) for count in counts]
        self._mean = sum(self._lengths) / max(1, len(counts))
        self._postings: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for index, count in enumerate(counts):
            for token, times in count.items():
                self._postings[token].append((index, times))

    def best(self, query: str, count: int) -> list[int]:
        """The indices of the best passages, best first."""
        scores: dict[int, float] = defaultdict(float)
        for token in set(_tokens(query)):
            postings = self._postings.get(token, ())
            rarity = math.log(1 + (len(self._lengths) - len(postings) + 0.5) / (len(postings) + 0.5))
            for index, times in postings:
                length = 1 - self._B + self._B * self._lengths[index] / self._mean
                scores[index] += rarity * times * (self._K + 1) / (times + self._K * length)
        return sorted(scores, key=lambda index: (-scores[index], index))[:count]


class Meanings:
    """Embeddings: passages whose vectors point in the direction of the query's."""

    def __init__(self, passages: list[Passage]) -> None:
        require("ludus_lab.retrieval", "wordllama")
        self._model = _wordllama()
        self._vectors = self._model.embed([passage.text for passage in passages], norm=True)

    def best(self, query: str, count: int) -> list[int]:
        """The indices of the nearest passages, nearest first."""
        scores = self._vectors @ self._model.embed([query], norm=True)[0]
        return [int(index) for index in (-scores).argsort(kind="stable")[:count]]


class Library:
    """All documents, and search over their passages."""

    def __init__(self, documents: dict[str, Document], ranking: Ranking) -> None:
        self.documents = documents
        self.passages = [passage for document in documents.values() for passage in document.passages()]
        kinds: list[Any] = [Words] if ranking != "embeddings" else []
        self._rankings = [kind(self.passages) for kind in (*kinds, *([Meanings] if ranking != "bm25" else []))]

    def search(self, query: str, count: int) -> list[Passage]:
        """The best passages. Two rankings are joined by the sums of their reciprocal ranks."""
        scores: dict[int, float] = defaultdict(float)
        for ranking in self._rankings:
            for rank, index in enumerate(ranking.best(query[:LONGEST_QUERY], 10 * count)):
                scores[index] += 1 / (60 + rank)
        return [self.passages[index] for index in sorted(scores, key=lambda index: -scores[index])[:count]]


@cache
def open_library(folder: Path, ranking: Ranking) -> Library:
    """The library of a folder, built once in each process."""
    return Library(read_corpus(folder), ranking)


def _tokens(text: str) -> list[str]:
    """Words in lower case; a name such as `max_page_count` also counts by its parts."""
    words = _TOKEN.findall(text.casefold())
    return words + [part for word in words if "_" in word for part in word.split("_") if part]


def _wordllama() -> Any:
    """The model inside the package. Its own search for the tokenizer looks elsewhere, and would download one."""
    from wordllama import WordLlama

    spec = find_spec("wordllama")
    assert spec is not None
    assert spec.origin is not None
    return WordLlama.load(cache_dir=Path(spec.origin).parent, disable_download=True)
