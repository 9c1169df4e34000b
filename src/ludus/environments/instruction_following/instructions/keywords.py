"""Words that a text must contain, must not contain, or must contain a number of times."""

from __future__ import annotations

import re

from ludus.environments.instruction_following.instructions.arguments import Count, Relation, Text, Word, Words, meets
from ludus.environments.instruction_following.instructions.matching import count, has_whole_word, pattern_count


def existence(text: str, *, keywords: Words, compat: bool = False) -> bool:
    """Every keyword occurs, in any case and also inside other words."""
    return all(count(keyword, text, compat=compat) for keyword in keywords)


def frequency(text: str, *, keyword: Word, frequency: Count, relation: Relation, compat: bool = False) -> bool:
    """The keyword occurs less than, or at least, `frequency` times."""
    return meets(count(keyword, text, compat=compat), relation, frequency)


def word_once(text: str, *, keyword: Word, compat: bool = False) -> bool:
    """The keyword occurs exactly once."""
    return count(keyword, text, compat=compat) == 1


def count_increment_word(text: str, *, keyword1: Word, keyword2: Word, compat: bool = False) -> bool:
    """The first keyword occurs once and the second twice."""
    return count(keyword1, text, compat=compat) == 1 and count(keyword2, text, compat=compat) == 2


def forbidden_words(text: str, *, forbidden_words: Words, compat: bool = False) -> bool:
    """None of the words occurs as a whole word, in any case."""
    if compat:
        return all(pattern_count(rf"\b{word}\b", text, re.IGNORECASE) == 0 for word in forbidden_words)
    return not any(has_whole_word(word, text, re.IGNORECASE) for word in forbidden_words)


def exclude_word_harder(text: str, *, keyword: Word, instruction: Text | None = None, compat: bool = False) -> bool:
    """The keyword, which the task mentions, does not occur as a whole word.

    The reference misses a keyword at the start, at the end and beside a mark.
    """
    return f" {keyword} " not in text if compat else not has_whole_word(keyword, text)
