"""How often a word occurs in a text.

A word is a word, whatever characters it holds. The reference takes it for a regular expression, which `compat` and
`pattern_count` reproduce. Such a pattern comes with a dataset and can take Python's `re` hours, in which no thread and
no deadline helps: `may_run_away` tells which arguments are better searched for in a process that can be stopped.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_REPEATS = re.compile(r"[*+?{(\\]")


def count(word: str, text: str, *, compat: bool = False) -> int | None:
    """How often a word occurs, in any case and also inside other words; None for a pattern that is none."""
    return pattern_count(word if compat else re.escape(word), text, re.IGNORECASE)


def stands_alone(word: str, text: str, flags: int = 0) -> bool:
    """Whether a word occurs with no letter, digit or underscore joined to it."""
    return re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text, flags) is not None


def pattern_count(pattern: str, text: str, flags: int = 0) -> int | None:
    """How often a pattern matches; None when `re` does not accept it."""
    try:
        return len(re.findall(pattern, text, flags))
    except (re.error, OverflowError, RecursionError):
        return None


def may_run_away(arguments: Mapping[str, Any]) -> bool:
    """Whether a text among the arguments, taken for a pattern, repeats anything, and so may take very long."""
    texts = [text for value in arguments.values() for text in (value if isinstance(value, list) else [value])]
    return any(isinstance(text, str) and _REPEATS.search(text) is not None for text in texts)
