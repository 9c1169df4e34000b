"""A policy, a user and a judge that decide by what they read, for Inspect's own models and for ours.

Only the standard library is imported: both sides of a comparison do.
"""

from __future__ import annotations

from zlib import crc32

ANSWERS = (
    "I have finished. The answer is A. <score>5</score> GRADE: C",
    "I cannot help with that. <score>1</score> GRADE: I",
    'Here is what I found. {"pay": 10} <score>3</score> GRADE: P',
)


def decide(texts: list[str], turns: int, tools: list[str]) -> tuple[str, str]:
    """The tool to call or an empty text, and what is said, by the conversation so far."""
    number = crc32("\n".join(texts).encode())
    if tools and turns < 2:
        return sorted(tools)[number % len(tools)], ""
    return "", ANSWERS[number % len(ANSWERS)]
