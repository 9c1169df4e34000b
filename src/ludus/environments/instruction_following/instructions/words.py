"""Two ways to split a text: into the tokens of the Penn Treebank, and into words as a person counts them.

`tokens` gives the tokens of NLTK's `word_tokenize`: each mark is a token, "can't" is "ca" and "n't", and the period at
the end of a sentence is split off its last word. `words` leaves out the marks and keeps words whole.
Both accept any text, take time proportional to its length, and never raise.
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
_AFTER_LAST_PERIOD = "])}>\"'\u00bb\u201d\u2019 "

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
    """The words of a text without the marks around them. Parts joined by an apostrophe, hyphen or dot are one word.

    words("She can't wait, can she?")   # ['She', "can't", 'wait', 'can', 'she']
    """
    return _WHOLE_WORD.findall(text)


def tokens(text: str) -> list[str]:
    """The tokens of a text, marks included.

    tokens("She can't wait, can she?")   # ['She', 'ca', "n't", 'wait', ',', 'can', 'she', '?']
    """
    listed: list[str] = []
    for sentence in punkt_sentences(text):
        body = sentence.rstrip().rstrip(_AFTER_LAST_PERIOD)
        if body.endswith(".") and body[-2:-1] not in {"", "."}:  # only the last period is a token
            last = len(body) - 1
            listed += [*_sentence_tokens(sentence[:last], True), ".", *_sentence_tokens(sentence[last + 1 :], False)]
        else:
            listed += _sentence_tokens(sentence, True)
    return listed


def _sentence_tokens(text: str, is_start: bool) -> list[str]:
    listed: list[str] = []
    after_space = False
    for chunk in text.split(" "):
        if chunk.isalnum() and chunk.lower() not in _FUSED_WORDS:
            listed.append(chunk)
        elif chunk:
            listed += _chunk_tokens(chunk, is_start, after_space)
        is_start, after_space = False, True
    return listed


def _chunk_tokens(chunk: str, is_start: bool, after_space: bool) -> list[str]:
    listed: list[str] = []
    for token in _TOKEN.finditer(chunk):
        kind, start = token.lastgroup, token.start()
        if kind == "mark":
            listed.append(token[0])
        elif kind == "quote":
            opens = chunk[start - 1] in _BEFORE_OPENING_QUOTE if start else after_space
            opens |= is_start and start < 2 and chunk[: start + 1] in {'"', '""'}
            listed.append("``" if opens else "''")
        elif kind == "second":  # the second of two marks in a row belongs to the word after it
            listed.append(token["first"])
            listed += _parts(token["second"])
        else:
            listed += _parts(token[0])
    return listed


def _parts(word: str) -> list[str]:
    """A word split from its clitics: "can't" gives "ca" and "n't"."""
    if "'" not in word:
        return _FUSED.sub(_with_spaces, word).split()
    parts = []
    for piece in _OPENING_APOSTROPHE.sub("' ", word).split():
        endings: list[str] = []
        for ending in _ENDINGS:
            if cut := ending.search(piece):
                endings.insert(0, cut[0])
                piece = piece[: cut.start()]
        parts += [*_FUSED.sub(_with_spaces, piece).split(), *endings]
    return parts


def _with_spaces(match: re.Match[str]) -> str:
    first, second = filter(None, match.groups())
    return f" {first} {second} "
