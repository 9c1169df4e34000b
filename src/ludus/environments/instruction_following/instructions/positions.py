"""The positions of words in a text: first, last, n-th, or next to each other."""

from __future__ import annotations

from itertools import pairwise

from ludus.environments.instruction_following.instructions.arguments import Ordinal, Word
from ludus.environments.instruction_following.instructions.sentences import rule_sentences
from ludus.environments.instruction_following.instructions.words import tokens, words


def keyword_specific_position(text: str, *, keyword: Word, n: Ordinal, m: Ordinal, compat: bool = False) -> bool:
    """The m-th word of the n-th sentence is the keyword, in the same case. The reference counts marks as words."""
    sentence = "".join(rule_sentences(text)[n - 1 : n])
    return (tokens(sentence) if compat else words(sentence))[m - 1 : m] == [keyword]


def start_end(text: str, *, compat: bool = False) -> bool:
    """The first and the last word are the same, in either case. In the reference a mark counts as a word."""
    listed = tokens(text)
    if len(listed) < 2 or listed[0].lower() != listed[-1].lower():
        return False
    return compat or bool(words(listed[0]))


def no_adjacent_consecutive(text: str) -> bool:
    """No word's first character directly follows, in code point order, the first character of the word before it."""
    initials = [word[0].lower() for word in text.split()]
    return all(len(first) == len(second) == 1 and ord(second) - ord(first) != 1 for first, second in pairwise(initials))


def palindrome(text: str, *, compat: bool = False) -> bool:
    """A word reads the same backwards. In the reference a single letter or a mark is enough."""
    palindromes = (word for word in text.split() if word == word[::-1])
    return any(compat or sum(map(str.isalnum, word)) > 1 for word in palindromes)


def first_word_sent(text: str, *, first_word: Word) -> bool:
    """Every sentence begins with the word, in any case."""
    return all(_first_word(sentence) == first_word.lower() for sentence in rule_sentences(text))


def first_word_answer(text: str, *, first_word: Word) -> bool:
    """The text begins with the word, in any case."""
    return _first_word(text) == first_word.lower()


def last_word_sent(text: str, *, last_word: Word) -> bool:
    """Every sentence ends with the word, in any case; marks joined to the word are ignored."""
    return all(_last_word(sentence) == last_word.lower() for sentence in rule_sentences(text))


def last_word_answer(text: str, *, last_word: Word) -> bool:
    """The text ends with the word, in any case; marks joined to the word are ignored."""
    return _last_word(text) == last_word.lower()


def end_checker(text: str, *, end_phrase: Word) -> bool:
    """The text ends with the phrase, in any case; quotation marks around the text are ignored."""
    return text.strip().strip('"').lower().endswith(end_phrase.lower())


def _first_word(text: str) -> str:
    return "".join(text.split(None, 1)[:1]).lower()


def _last_word(text: str) -> str:
    """The last word without its marks. If the text ends with a separate dash, that is the empty text."""
    last = "".join(text.rsplit(None, 1)[-1:])
    return "".join(character for character in last if character.isalnum() or character == "_").lower()
