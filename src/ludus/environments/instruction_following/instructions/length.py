"""How many words, sentences and paragraphs a text has."""

from __future__ import annotations

import re

from ludus.environments.instruction_following.instructions.arguments import Count, Ordinal, Relation, Word, meets
from ludus.environments.instruction_following.instructions.sentences import punkt_sentences

_RUN_OF_WORD_CHARACTERS = re.compile(r"\w+")
#: Separates paragraphs, and includes one whitespace character on either side.
DIVIDER = re.compile(r"\s?\*\*\*\s?")
_ENDS_FIRST_WORD = re.compile(r"""[.,?!'"]""")


def number_sentences(text: str, *, num_sentences: Count, relation: Relation) -> bool:
    """There are less than, or at least, `num_sentences` sentences."""
    return meets(len(punkt_sentences(text)), relation, num_sentences)


def number_words(text: str, *, num_words: Count, relation: Relation) -> bool:
    """There are less than, or at least, `num_words` runs of letters, digits and underscores."""
    return meets(len(_RUN_OF_WORD_CHARACTERS.findall(text)), relation, num_words)


def number_paragraphs(text: str, *, num_paragraphs: Count) -> bool:
    """There are `num_paragraphs` paragraphs between `***`."""
    return _count_filled(DIVIDER.split(text)) == num_paragraphs


def paragraphs(text: str) -> bool:
    """There are two paragraphs between `***`."""
    return _count_filled(DIVIDER.split(text)) == 2


def paragraphs2(text: str) -> bool:
    """There are two paragraphs between blank lines."""
    return _count_filled(text.split("\n\n")) == 2


def nth_paragraph_first_word(text: str, *, num_paragraphs: Count, nth_paragraph: Ordinal, first_word: Word) -> bool:
    """There are `num_paragraphs` paragraphs between blank lines, and the n-th begins with the word, in any case."""
    parts = text.split("\n\n")
    filled = sum(bool(part.strip()) for part in parts)
    if filled != num_paragraphs or nth_paragraph > filled:
        return False
    chosen = parts[nth_paragraph - 1].split(None, 1)
    word = chosen[0].lstrip("'").lstrip('"') if chosen else ""
    return _ENDS_FIRST_WORD.split(word, maxsplit=1)[0].lower() == first_word.lower()


def _count_filled(parts: list[str]) -> int | None:
    """How many parts are not blank. None if a part other than the first or the last is blank."""
    blank = [index for index, part in enumerate(parts) if not part.strip()]
    if any(0 < index < len(parts) - 1 for index in blank):
        return None
    return len(parts) - len(blank)
