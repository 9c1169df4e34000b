"""Words that a text must hold, must not hold, or must hold a number of times."""

from __future__ import annotations

import re

from ludus.environments.instruction_following.instructions.arguments import Count, Relation, Text, Word, Words, holds
from ludus.environments.instruction_following.instructions.matching import count, pattern_count, stands_alone


def existence(text: str, *, keywords: Words, compat: bool = False) -> bool:
    """Every keyword occurs, in any case and also inside other words."""
    return all(count(keyword, text, compat=compat) for keyword in keywords)


def frequency(text: str, *, keyword: Word, frequency: Count, relation: Relation, compat: bool = False) -> bool:
    """The keyword occurs as often as the relation wants."""
    return holds(count(keyword, text, compat=compat), relation, frequency)


def word_once(text: str, *, keyword: Word, compat: bool = False) -> bool:
    """The keyword occurs exactly once."""
    return count(keyword, text, compat=compat) == 1


def count_increment_word(text: str, *, keyword1: Word, keyword2: Word, compat: bool = False) -> bool:
    """The first keyword occurs once and the second twice."""
    return count(keyword1, text, compat=compat) == 1 and count(keyword2, text, compat=compat) == 2


def forbidden_words(text: str, *, forbidden_words: Words, compat: bool = False) -> bool:
    """None of the words occurs as a word of its own, in any case."""
    if compat:
        return all(pattern_count(rf"\b{word}\b", text, re.IGNORECASE) == 0 for word in forbidden_words)
    return not any(stands_alone(word, text, re.IGNORECASE) for word in forbidden_words)


def exclude_word_harder(text: str, *, keyword: Word, instruction: Text | None = None, compat: bool = False) -> bool:
    """The keyword, which the task itself mentions, does not occur as a word of its own.

    The reference misses it at the start, at the end and beside a mark.
    """
    return f" {keyword} " not in text if compat else not stands_alone(keyword, text)
