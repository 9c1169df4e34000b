"""Near-duplicates by MinHash: texts that share most of their runs of three words.

Each word is hashed with blake2b, and the hash of a run is made of those of its words. The smallest hashes of a text are
its sketch: two sketches estimate how much two texts share (the Jaccard similarity), and are exact for texts with at
most 64 different runs. To find the sketches that are worth a comparison, the hashes are also dealt into bins, and the
smallest of several bins together are a key (a band): similar texts share a key with high probability.

The libraries for this need numpy and scipy, which the core does not have, for what is a hundred lines
here. The memory is about 2 KB for each text that was added, whatever its length.
"""

from __future__ import annotations

import functools
import random
from array import array
from hashlib import blake2b

from ludus.data.row_text import ngrams

_RUN, _SKETCH, _BANDS = 3, 64, 12
_FACTOR, _MASK = 0x9E3779B97F4A7C15, 2**64 - 1
#: The share of near-duplicates at the threshold that the bands must find.
_RECALL = 0.95
#: The number of texts that one key may lead to. More are texts of one template; comparing all would take forever.
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
            found = self._texts_of.get(key, ())
            candidates.update((found,) if isinstance(found, int) else found)
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
            found = self._texts_of.setdefault(key, number)
            if isinstance(found, list):
                if len(found) < _MOST_PER_KEY:
                    found.append(number)
            elif found != number:
                self._texts_of[key] = [found, number]

    def _keys(self, hashes: set[int]) -> list[bytes]:
        """One key for each band: the smallest hashes of its bins.

        An empty bin borrows from others in a random order of its own: then the bands of a short text are independent.
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
            filled.append(own if own is not None else next(each for each in borrowed if each is not None))
        return [
            blake2b(repr((band, filled[band * size : (band + 1) * size])).encode(), digest_size=8).digest()
            for band in range(_BANDS)
        ]


def _word_hash(word: str) -> int:
    return _cached_hash(word) if len(word) <= 32 else _hash(word)


def _hash(word: str) -> int:
    return int.from_bytes(blake2b(word.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big")


_cached_hash = functools.lru_cache(maxsize=100_000)(_hash)  # long words would fill the memory


def _run_hash(run: tuple[int, ...]) -> int:
    """The hash of a run of words, made of the hashes of its words, which is faster than to hash its text."""
    value = len(run)
    for word in run:
        value = (value ^ word) * _FACTOR & _MASK
    return value


def _similarity(one: array[int], other: array[int]) -> float:
    """The estimate of the Jaccard similarity: what share of the smallest hashes of both texts together is in both."""
    first, second = set(one), set(other)
    both = sorted(first | second)[:_SKETCH]
    return sum(value in first and value in second for value in both) / len(both) if both else 0.0
