"""Two sentence splitters, because the reference checks some instructions with one and some with the other.

`rule_sentences` knows a few titles, suffixes and acronyms, and ends a sentence at every other mark. `punkt_sentences`
follows Punkt (Kiss and Strunk, 2006): a period ends a sentence unless it belongs to an abbreviation, an initial or an
ordinal, which the next word helps to decide. Punkt learns its words from a corpus; the lists in `english.py` replace
the English model, so that nothing has to be downloaded and every machine counts the same.

Both accept any text, take time proportional to its length, and never raise.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from ludus.environments.instruction_following.instructions.english import (
    ABBREVIATIONS,
    ORDINARY_WORDS,
    SENTENCE_OPENERS,
)

# Two noncharacters stand for a period that ends no sentence, and for a sentence end without a mark.
_INNER, _END = "\ufdd0", "\ufdd1"
_RESERVED = str.maketrans("", "", _INNER + _END)

_OPENER = r"(?:Mrs?|Ms|Dr|Prof|Capt|Cpt|Lt|Wherever|(?:He|She|It|They|Their|Our|We|But|However|That|This)\s)"
_SUFFIX = "(?:Inc|Ltd|Jr|Sr|Co)"


def _keep(match: re.Match[str]) -> str:
    return match[0].replace(".", _INNER)


def _end_after(match: re.Match[str]) -> str:
    return _keep(match) + _END


def _end_before_opener(match: re.Match[str]) -> str:
    return match[1] + _END + match[2]


#: How to treat periods, in this order. `_keep` hides a period from the rules after it.
_RULES: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...] = (
    (re.compile(r"(?:Mrs?|St|Ms|Dr)\."), _keep),
    (re.compile(r"\.(?=com|net|org|io|gov|edu|me)"), _keep),
    (re.compile(r"[0-9]\.[0-9]"), _keep),
    (re.compile(r"\.{2,}"), _end_after),
    (re.compile(r"Ph\.D\."), _keep),
    (re.compile(r"\s[A-Za-z]\. "), _keep),
    (re.compile(rf"([A-Z]\.[A-Z]\.(?:[A-Z]\.)?)( {_OPENER})"), _end_before_opener),
    (re.compile(r"[A-Za-z]\.[A-Za-z]\.[A-Za-z]\."), _keep),
    (re.compile(r"[A-Za-z]\.[A-Za-z]\."), _keep),
    (re.compile(rf"( {_SUFFIX})\.( {_OPENER})"), _end_before_opener),
    (re.compile(rf" (?:{_SUFFIX}|[A-Za-z])\."), _keep),
)
_MARKS_IN_QUOTES = (".\u201d", '."', '!"', '?"')
_ENDS = re.compile(f"(?<=[.?!])|{_END}")


def rule_sentences(text: str) -> list[str]:
    """The sentences of a text by fixed rules: every `.`, `?` and `!` ends a sentence unless a rule keeps it inside.

    A quotation mark after the end is moved in front of it. "!!" ends two sentences, and the second is "!".
    """
    text = f" {text.translate(_RESERVED)}  ".replace("\n", " ")
    for pattern, treatment in _RULES:
        text = pattern.sub(treatment, text)
    for mark in _MARKS_IN_QUOTES:
        text = text.replace(mark, mark[::-1])
    sentences = [piece.replace(_INNER, ".").strip() for piece in _ENDS.split(text)]
    return sentences if sentences[-1] else sentences[:-1]


_CURLY = "\u2018\u2019\u201c\u201d\u00ab\u00bb"
_NOT_IN_WORDS = rf"""[)";}}\]*:@'({{\[!?{_CURLY}]"""
_RUN = r"-{2,}|\.{2,}"
_MARK = re.compile(rf"[.?!](?=(?P<mark>{_NOT_IN_WORDS})|\s++(?P<next>\S+))")
_PIECE = re.compile(
    rf"{_RUN}|[^\s(\"`{{\[:;&#*@)}}\]\-,]\S*?(?=\s|$|{_NOT_IN_WORDS}|{_RUN}|,(?=$|\s|{_NOT_IN_WORDS}|{_RUN}))|\S"
)
_CLOSING = re.compile(rf"""["')\]}}{_CURLY}]+?(?:\s+|(?=--)|$)""")
_NUMBER = re.compile(r"-?[.,]?\d[\d,.-]*")


def punkt_sentences(text: str) -> list[str]:
    """The sentences of a text by Punkt. Closing quotes and brackets stay with the sentence that they close.

    punkt_sentences("Dr. Li came at 5 p.m. It rained.")   # ['Dr. Li came at 5 p.m.', 'It rained.']
    """
    spans: list[tuple[int, int]] = []
    start = 0
    for stop, following in [*_breaks(text), (len(text.rstrip()), 0)]:
        closing = _CLOSING.match(text[start:stop]) if spans else None
        if closing:
            spans[-1] = (spans[-1][0], start + len(closing[0].rstrip()))
            start += closing.end()
        if start < stop:
            spans.append((start, stop))
        start = following
    return [text[start:stop] for start, stop in spans]


def _breaks(text: str) -> Iterator[tuple[int, int]]:
    """The positions where a sentence stops and where the next sentence starts."""
    for start, mark in _possible_ends(text):
        pieces = _PIECE.findall(f"{text[start : mark.end()]}{mark['mark'] or ' ' + mark['next']}")
        if any(map(_ends_sentence, pieces, pieces[1:])):
            yield mark.end(), mark.end() if mark["mark"] else mark.start("next")


def _possible_ends(text: str) -> Iterator[tuple[int, re.Match[str]]]:
    """For each word, its start and its last mark that text follows. A mark before a word counts as a word."""
    start, last = 0, None
    for mark in _MARK.finditer(text):
        between = text[last.end() if last else 0 : mark.start()]
        blank = between[-1:].isspace()
        tail = "" if blank else between.rsplit(None, 1)[-1] if between else ""
        new_word = blank or len(tail) < len(between)
        if last and (new_word or last.start() == start):
            yield start, last
        if new_word or last is None:
            start = mark.start() - len(tail)
        last = mark
    if last:
        yield start, last


def _is_abbreviation(word: str) -> bool:
    return word in ABBREVIATIONS or word.rpartition("-")[2] in ABBREVIATIONS


def _ends_sentence(piece: str, following: str) -> bool:
    if piece in {".", "?", "!"}:
        return True
    if not piece.endswith("."):
        return False
    word, next_word = piece[:-1].lower(), following.removesuffix(".").lower()
    if following.endswith(".") and _is_abbreviation(next_word):
        next_word += "."  # an abbreviation shows nothing about where a sentence starts
    capital = following[0].isupper()
    opens = capital and next_word in SENTENCE_OPENERS
    is_initial = len(word) == 1 and word.isalpha()
    if not piece.strip(".") or _is_abbreviation(word):
        return opens and not is_initial
    if is_initial and capital:
        return next_word in ORDINARY_WORDS or (opens and next_word != "i")
    if is_initial or _NUMBER.fullmatch(word):
        return not (following[0].islower() or following in {";", ":", ",", ".", "!", "?"})
    return True
