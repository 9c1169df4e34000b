"""Counts of letters and words in a text."""

from __future__ import annotations

import re

from ludus.environments.instruction_following.instructions.arguments import Count, Letter, Relation, meets
from ludus.environments.instruction_following.instructions.length import DIVIDER
from ludus.environments.instruction_following.instructions.sentences import rule_sentences
from ludus.environments.instruction_following.instructions.words import tokens, words

_LOWERCASE_WORD = re.compile(r"\b[a-z]+\b")
_LATIN_LETTER = re.compile(r"[a-zA-Z]")


def letter_frequency(text: str, *, letter: Letter, let_frequency: Count, let_relation: Relation) -> bool:
    """The letter occurs, in either case, less than or at least `let_frequency` times."""
    return meets(text.lower().count(letter.lower()), let_relation, let_frequency)


def letter_counting(text: str, *, N: Count, relation: Relation) -> bool:
    """There are less than, or at least, N letters from A to Z, in either case."""
    return meets(len(_LATIN_LETTER.findall(text)), relation, N)


def lowercase_counting(text: str, *, N: Count) -> bool:
    """At most N words consist only of letters from a to z."""
    return len(_LOWERCASE_WORD.findall(text)) <= N


def capital_word_frequency(text: str, *, capital_frequency: Count, capital_relation: Relation) -> bool:
    """Less than, or at least, `capital_frequency` tokens are in capitals."""
    return meets(sum(token.isupper() for token in tokens(text)), capital_relation, capital_frequency)


def count_unique(text: str, *, compat: bool = False) -> bool:
    """No word occurs twice. The reference compares tokens, so that marks and the "n't" of "don't" count as words."""
    listed = tokens(text) if compat else words(text)
    return len(listed) == len(set(listed))


def counting_composition(text: str, *, n_sent: Count, n_words: Count, compat: bool = False) -> bool:
    """Three paragraphs between `***`, each of `n_sent` sentences, each of `n_words` words.

    The reference counts marks as words.
    """
    paragraphs = DIVIDER.split(text)
    split = tokens if compat else words
    return len(paragraphs) == 3 and all(
        len(sentences) == n_sent and all(len(split(sentence)) == n_words for sentence in sentences)
        for sentences in map(rule_sentences, paragraphs)
    )
