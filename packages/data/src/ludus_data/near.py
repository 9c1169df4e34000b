"""Near-duplicates by MinHash: texts that share most of their runs of three words.

Each word is hashed with blake2b; a run's hash combines its words' hashes. The smallest hashes of a text are its sketch.
Two sketches estimate the Jaccard similarity of two texts, exactly if the texts have at most 64 different runs. To find
candidates, the hashes also go into bins, and the smallest hashes of several bins form a key (a band). Similar texts
share a key with high probability.

Libraries for this need numpy and scipy, and the core has neither. The memory is about 2 KB for each text, whatever its
length.
"""

from __future__ import annotations

import functools
import random
from array import array
from hashlib import blake2b

from ludus_data.row_text import ngrams

_RUN, _SKETCH, _BANDS = 3, 64, 12
_FACTOR, _MASK = 0x9E3779B97F4A7C15, 2**64 - 1
#: The share of near-duplicates at the threshold that the bands must find.
_RECALL = 0.95
#: Texts per key. More share a template, and comparing all of them would be quadratic.
_MOST_PER_KEY = 8


class NearDuplicates:
    """Finds an earlier text that is similar to a new one."""

    def __init__(self, threshold: float) -> None:
        self._threshold = threshold
        self._bins = next(
            size for size in range(12, 0, -1) if size == 1 or 1 - (1 - threshold**size) ** _BANDS >= _RECALL
        )
        count, draw = _BANDS * self._bins, random.Random(0)
        self._borrow = [draw.sample(range(count), count) for _ in range(count)]
        self._sketches: list[array[int]] = []
        self._texts_of: dict[bytes, list[int] | int] = {}

    def find_or_add(self, words: list[str]) -> tuple[int, float] | None:
        """The number of the first similar text, counted from 0 in the order of adding, and the similarity.

        A text that is similar to none is added. A text without words is similar to none and is added too.
        """
        hashes = set(map(_run_hash, ngrams(list(map(_word_hash, words)), _RUN)))
        sketch = array("Q", sorted(hashes)[:_SKETCH])
        keys = self._keys(hashes)
        candidates: set[int] = set()
        for key in keys:
            numbers = self._texts_of.get(key, ())
            candidates.update((numbers,) if isinstance(numbers, int) else numbers)
        for number in sorted(candidates):
            similarity = _similarity(sketch, self._sketches[number])
            if similarity >= self._threshold:
                return number, similarity
        self._add(sketch, keys)
        return None

    def _add(self, sketch: array[int], keys: list[bytes]) -> None:
        number = len(self._sketches)
        self._sketches.append(sketch)
        for key in keys:
            numbers = self._texts_of.setdefault(key, number)
            if isinstance(numbers, list):
                if len(numbers) < _MOST_PER_KEY:
                    numbers.append(number)
            elif numbers != number:
                self._texts_of[key] = [numbers, number]

    def _keys(self, hashes: set[int]) -> list[bytes]:
        """One key for each band: the smallest hashes of its bins.

        An empty bin borrows from others in its own random order, so that the bands of a short text are independent.
        """
        if not hashes:
            return []
        count = _BANDS * self._bins
        smallest: list[int | None] = [None] * count
        for value in hashes:
            place, rest = value % count, value // count
            held = smallest[place]
            if held is None or rest < held:
                smallest[place] = rest
        size, filled = self._bins, list[int]()
        for place, own in enumerate(smallest):
            borrowed = (smallest[other] for other in self._borrow[place])
            filled.append(own if own is not None else next(value for value in borrowed if value is not None))
        return [
            blake2b(repr((band, filled[band * size : (band + 1) * size])).encode(), digest_size=8).digest()
            for band in range(_BANDS)
        ]


def _word_hash(word: str) -> int:
    return _cached_hash(word) if len(word) <= 32 else _hash(word)


def _hash(word: str) -> int:
    return int.from_bytes(blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


_cached_hash = functools.lru_cache(maxsize=100_000)(_hash)  # only short words: long ones would fill the memory


def _run_hash(run: tuple[int, ...]) -> int:
    """The hash of a run of words, from the hashes of its words."""
    value = len(run)
    for word in run:
        value = (value ^ word) * _FACTOR & _MASK
    return value


def _similarity(sketch: array[int], other: array[int]) -> float:
    """The estimated Jaccard similarity: which share of the union's smallest hashes is in both sketches."""
    shared, union = set(sketch) & set(other), sorted({*sketch, *other})[:_SKETCH]
    return sum(value in shared for value in union) / len(union) if union else 0.0
