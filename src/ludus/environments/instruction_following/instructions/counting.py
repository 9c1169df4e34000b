"""How many letters or words of a kind a text holds."""

from __future__ import annotations

import re

from ludus.environments.instruction_following.instructions.arguments import Count, Letter, Relation, holds
from ludus.environments.instruction_following.instructions.length import DIVIDER
from ludus.environments.instruction_following.instructions.sentences import rule_sentences
from ludus.environments.instruction_following.instructions.words import tokens, words

_LOWERCASE_WORD = re.compile(r"\b[a-z]+\b")
_LATIN_LETTER = re.compile(r"[a-zA-Z]")


def letter_frequency(text: str, *, letter: Letter, let_frequency: Count, let_relation: Relation) -> bool:
    """One letter occurs, in either case, as often as the relation wants."""
    return holds(text.lower().count(letter.lower()), let_relation, let_frequency)


def letter_counting(text: str, *, N: Count, relation: Relation) -> bool:
    """There are as many letters from A to Z, in either case, as the relation wants."""
    return holds(len(_LATIN_LETTER.findall(text)), relation, N)


def lowercase_counting(text: str, *, N: Count) -> bool:
    """There are at most N words of nothing but letters from a to z."""
    return len(_LOWERCASE_WORD.findall(text)) <= N


def capital_word_frequency(text: str, *, capital_frequency: Count, capital_relation: Relation) -> bool:
    """There are as many tokens in capitals as the relation wants."""
    return holds(sum(token.isupper() for token in tokens(text)), capital_relation, capital_frequency)


def count_unique(text: str, *, compat: bool = False) -> bool:
    """No word occurs twice. In the reference no mark does either, and "don't" and "won't" share a word."""
    found = tokens(text) if compat else words(text)
    return len(found) == len(set(found))


def counting_composition(text: str, *, n_sent: Count, n_words: Count, compat: bool = False) -> bool:
    """Three paragraphs between `***`, each of so many sentences, each of so many words.

    The reference counts marks as words.
    """
    paragraphs = DIVIDER.split(text)
    counted = tokens if compat else words
    return len(paragraphs) == 3 and all(
        len(sentences) == n_sent and all(len(counted(sentence)) == n_words for sentence in sentences)
        for sentences in map(rule_sentences, paragraphs)
    )
