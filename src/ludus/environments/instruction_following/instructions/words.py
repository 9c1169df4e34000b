"""What counts as a word: as a tokenizer of the Penn Treebank sees it, or as a person would say.

`tokens` gives the tokens that NLTK's `word_tokenize` gives: marks are tokens of their own, "can't" is "ca" and "n't",
and the period at the end of a sentence is cut off its last word. `words` leaves out the marks and leaves words whole.
Both take any text, read it a fixed number of times, and never raise.
"""

from __future__ import annotations

import re

from ludus.environments.instruction_following.instructions.sentences import punkt_sentences

_ALONE = r";@#$%&?!*\[\](){}<>\u00ab\u00bb\u201c\u201d\u2018\u201e\u2012-\u2015"
_IN_WORD = rf"[^\s:,{_ALONE}\u2019`\"]"
_WORD = rf"(?:[:,](?=\d)|\.(?!\.)|-(?!-)|'(?!')|(?![.'\-]){_IN_WORD})+"
_TOKEN = re.compile(
    rf"(?P<word>(?![:,]){_WORD})|(?P<mark>``?|\.\.+|--|[{_ALONE}\u2019]|[:,](?![\d:,]))|(?P<quote>\"|'')"
    rf"|(?P<first>[:,])(?P<second>[:,](?:{_WORD})?)|(?P<odd>{_WORD})"
)
_BEFORE_OPENING_QUOTE = "([{<`\u00ab\u201c\u2018\u201e"
_BEHIND_LAST_PERIOD = "])}>\"'\u00bb\u201d\u2019 "

_OPENING_APOSTROPHE = re.compile(r"(?<!\w)'(?!(?:re|ve|ll|[mtsdn])\b)(?=\w)", re.IGNORECASE)
_ENDINGS = tuple(
    re.compile(rf"(?<=[^'])(?:{ending})$") for ending in ("'", "'[sSmMdD]?", "'ll|'LL|'re|'RE|'ve|'VE|n't|N'T")
)
_FUSED = re.compile(
    r"\b(?:(can)(not)|(d)('ye)|(gim)(me)|(gon)(na)|(got)(ta)|(lem)(me)|(more)('n)|(wan)(na)(?=$))\b", re.IGNORECASE
)
_FUSED_WORDS = frozenset(("cannot", "gimme", "gonna", "gotta", "lemme", "wanna"))

_WHOLE_WORD = re.compile(
    rf"\w(?:(?:[^\s:,.\-{_ALONE}`\"]|\.(?!\.)|-(?!-)|[:,](?=\d))*\w)?",
)


def words(text: str) -> list[str]:
    """The words of a text without the marks around them; what an apostrophe, a hyphen or a dot joins is one word.

    words("She can't wait, can she?")   # ['She', "can't", 'wait', 'can', 'she']
    """
    return _WHOLE_WORD.findall(text)


def tokens(text: str) -> list[str]:
    """The tokens of a text, marks included.

    tokens("She can't wait, can she?")   # ['She', 'ca', "n't", 'wait', ',', 'can', 'she', '?']
    """
    found: list[str] = []
    for sentence in punkt_sentences(text):
        body = sentence.rstrip().rstrip(_BEHIND_LAST_PERIOD)
        if body.endswith(".") and body[-2:-1] not in {"", "."}:  # the one period that is not part of its word
            last = len(body) - 1
            found += [*_lexed(sentence[:last], True), ".", *_lexed(sentence[last + 1 :], False)]
        else:
            found += _lexed(sentence, True)
    return found


def _lexed(text: str, is_start: bool) -> list[str]:
    found: list[str] = []
    behind_blank = False
    for chunk in text.split(" "):
        if chunk.isalnum() and chunk.lower() not in _FUSED_WORDS:
            found.append(chunk)
        elif chunk:
            found += _lexed_chunk(chunk, is_start, behind_blank)
        is_start, behind_blank = False, True
    return found


def _lexed_chunk(chunk: str, is_start: bool, behind_blank: bool) -> list[str]:
    found: list[str] = []
    for token in _TOKEN.finditer(chunk):
        kind, start = token.lastgroup, token.start()
        if kind == "mark":
            found.append(token[0])
        elif kind == "quote":
            opens = chunk[start - 1] in _BEFORE_OPENING_QUOTE if start else behind_blank
            opens |= is_start and start < 2 and chunk[: start + 1] in {'"', '""'}
            found.append("``" if opens else "''")
        elif kind == "second":  # of two marks in a row the second belongs to what follows
            found.append(token["first"])
            found += _parts(token["second"])
        else:
            found += _parts(token[0])
    return found


def _parts(word: str) -> list[str]:
    """A word without its clitics, and these."""
    if "'" not in word:
        return _FUSED.sub(_apart, word).split()
    parts = []
    for piece in _OPENING_APOSTROPHE.sub("' ", word).split():
        endings: list[str] = []
        for ending in _ENDINGS:
            if cut := ending.search(piece):
                endings.insert(0, cut[0])
                piece = piece[: cut.start()]
        parts += [*_FUSED.sub(_apart, piece).split(), *endings]
    return parts


def _apart(found: re.Match[str]) -> str:
    first, second = filter(None, found.groups())
    return f" {first} {second} "
