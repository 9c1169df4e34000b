"""How long the local search of the google_search environment takes to index documents and to answer.

Words are drawn as in natural language, where a few are in almost every document (Zipf's law); queries of one to eight
words are drawn in the same way, so most hold words that are everywhere. Every query is asked for the first time.

    python benchmarks/search.py --documents 50000
"""

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

from ludus.environments.google_search.corpus import Document
from ludus.environments.google_search.index import Index

VOCABULARY, WORDS, QUERIES = 60_000, 150, 1_000


def word(number: int) -> str:
    """The same short word for the same number: syllables, the first numbers the shortest."""
    syllables = []
    while number >= 0:
        number, syllable = number // 70 - 1, number % 70
        syllables.append("bcdfghklmnprst"[syllable % 14] + "aeiou"[syllable // 14])
    return "".join(syllables)


def documents(count: int, rng: random.Random, vocabulary: list[str], weights: list[float]) -> Iterator[Document]:
    """Documents with a title of five words and a text of `WORDS`."""
    for number in range(count):
        drawn = rng.choices(vocabulary, cum_weights=weights, k=WORDS + 5)
        yield Document(f"https://corpus.example/{number}", " ".join(drawn[:5]), " ".join(drawn[5:]))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--documents", type=int, default=50_000)
    count = parser.parse_args().documents
    rng = random.Random(0)
    vocabulary = [word(number) for number in range(VOCABULARY)]
    weights = list(accumulate(1 / (rank + 2.7) for rank in range(VOCABULARY)))
    corpus = list(documents(count, rng, vocabulary, weights))
    queries = [" ".join(rng.choices(vocabulary, cum_weights=weights, k=rng.randint(1, 8))) for _ in range(QUERIES)]
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        index = Index.build(Path(folder) / "index", corpus)
        built = time.perf_counter() - began
        times = []
        for query in queries:
            began = time.perf_counter()
            index.search(query, 10)
            times.append(time.perf_counter() - began)
        index.close()
    times.sort()
    report = {
        "documents": count,
        "build_s": built,
        "queries": QUERIES,
        "median_ms": statistics.median(times) * 1e3,
        "p95_ms": times[int(0.95 * QUERIES)] * 1e3,
        "max_ms": times[-1] * 1e3,
    }
    print(json.dumps({key: round(value, 3) for key, value in report.items()}))


if __name__ == "__main__":
    main()
