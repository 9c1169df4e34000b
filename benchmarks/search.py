"""The time that the local search of the google_search environment takes to index documents and to answer queries.

Words follow Zipf's law as in natural language: a few words are in almost every document. Queries of one to eight words
are drawn in the same way, so most hold very common words. No query is repeated. Wall time and CPU time are reported,
because other load on the machine changes the wall time.

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
    """A word made of syllables for a number; small numbers get short words."""
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
        began, cpu = time.perf_counter(), time.process_time()
        index = Index.build(Path(folder) / "index", corpus)
        built, built_cpu = time.perf_counter() - began, time.process_time() - cpu
        clock, cpu_times = [], []
        for query in queries:
            began, cpu = time.perf_counter(), time.thread_time()
            index.search(query, 10)
            cpu_times.append(time.thread_time() - cpu)
            clock.append(time.perf_counter() - began)
        index.close()
    report = {"documents": count, "build_s": built, "build_cpu_s": built_cpu, "queries": QUERIES}
    for name, times in (("", clock), ("_cpu", cpu_times)):
        report[f"median{name}_ms"] = statistics.median(times) * 1e3
        report[f"p95{name}_ms"] = sorted(times)[int(0.95 * QUERIES)] * 1e3
    report["max_ms"] = max(clock) * 1e3
    print(json.dumps({key: round(value, 3) for key, value in report.items()}))


if __name__ == "__main__":
    main()
