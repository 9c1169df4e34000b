"""How often a word occurs in a text.

Ludus searches for the word as it is written. The reference treats a word as a regular expression, which `compat` and
`pattern_count` reproduce. A pattern from a dataset can keep Python's `re` busy for hours, and a thread cannot be
stopped meanwhile. `may_run_away` says whether to search in a process, which can be killed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_REPEATS = re.compile(r"[*+?{(\\]")


def count(word: str, text: str, *, compat: bool = False) -> int | None:
    """How often a word occurs, in any case and also inside other words; None for an invalid pattern."""
    return pattern_count(word if compat else re.escape(word), text, re.IGNORECASE)


def has_whole_word(word: str, text: str, flags: int = 0) -> bool:
    """Whether a word occurs with no letter, digit or underscore directly before or after it."""
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text, flags) is not None


def pattern_count(pattern: str, text: str, flags: int = 0) -> int | None:
    """How often a pattern matches; None if `re` rejects the pattern."""
    try:
        return len(re.findall(pattern, text, flags))
    except (re.error, OverflowError, RecursionError):
        return None


def may_run_away(arguments: Mapping[str, Any]) -> bool:
    """Whether any argument, read as a pattern, contains a repetition and so may match for a very long time."""
    texts = [text for value in arguments.values() for text in (value if isinstance(value, list) else [value])]
    return any(isinstance(text, str) and _REPEATS.search(text) is not None for text in texts)
