"""Texts of any length with one sentence that matters: `--dataset long --set data.words=50000`."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

NAMES = "Ada Bruno Carla Dmitri Elif Farid Greta Hugo Ines Jonas Kaya Lena Mateo Nora Omar Petra".split()
DAYS = "Monday Tuesday Wednesday Thursday Friday".split()
FILLER = (
    "The rain stopped before noon and the market filled again.",
    "Nobody remembered who had ordered the second ladder.",
    "A van with blue letters waited in front of the bakery.",
    "The minutes of the last meeting were read and approved.",
    "In the corridor somebody was tuning a violin.",
    "The lift was out of order, so the parcels went up the stairs.",
    "Two windows on the third floor needed new putty.",
    "The committee thanked the volunteers and closed early.",
)
ASK = "{text}\n\nWhich locker number did {name} get on {day}? Finish with one line: Answer: NUMBER"


def stream(seed: int, words: int = 600) -> Iterator[dict[str, Any]]:
    """Rows without end; the same seed gives the same rows. `words` is the length of each text, roughly."""
    chance = random.Random(seed)
    while True:
        yield row(chance, words)


def row(chance: random.Random, words: int) -> dict[str, Any]:
    """One text. Every name and day occurs at most once, so only the right pair answers the question."""
    pairs = chance.sample([(name, day) for name in NAMES for day in DAYS], 12)
    lockers = chance.sample(range(1000, 10_000), len(pairs))
    facts = [f"On {day} {name} got locker {number}." for (name, day), number in zip(pairs, lockers, strict=True)]
    lines = [chance.choice(FILLER) for _ in range(max(0, words - 7 * len(facts)) // 9)]
    for fact in facts:
        lines.insert(chance.randint(0, len(lines)), fact)
    (name, day), number = pairs[0], lockers[0]
    prompt = ASK.format(text=" ".join(lines), name=name, day=day)
    depth = lines.index(facts[0]) / (len(lines) - 1)
    return {
        "responses_create_params": {"input": [{"role": "user", "content": prompt}]},
        "expected_answer": str(number),
        "words": words,
        "depth": round(depth, 3),
    }
