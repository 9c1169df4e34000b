"""SQL as a list of tokens, so that names, texts and brackets are never confused.

Quoted names become `"name"` and texts become `'text'`, whatever quotes a dialect uses, so that SQLite reads them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

MYSQL, POSTGRESQL, SQLITE = "mysql", "postgresql", "sqlite"
DIALECTS = {MYSQL: MYSQL, POSTGRESQL: POSTGRESQL, SQLITE: SQLITE, "postgres": POSTGRESQL, "pg": POSTGRESQL}
DIALECTS["sqlite3"] = SQLITE

WORD, NAME, TEXT, NUMBER, SIGN = "word", "name", "text", "number", "sign"

_TOKEN = re.compile(
    r"(?P<space>\s+|--[^\n]*|/\*.*?\*/)"
    r"|(?P<text>'(?:[^']|'')*')"
    r'|(?P<name>"(?:[^"]|"")*"|`(?:[^`]|``)*`|\[[A-Za-z_][^\]\n]*\])'
    r"|(?P<number>0x[0-9A-Fa-f]+|(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)"
    r"|(?P<word>[^\W\d][\w$]*)"
    r"|(?P<sign>::|<=>|->>|->|\|\||<<|>>|<=|>=|<>|!=|==|&&|.)",
    re.DOTALL,
)
_MOST_DIGITS = 400
_MYSQL_TEXT = re.compile(r"""'((?:[^'\\]|''|\\.)*)'|"((?:[^"\\]|""|\\.)*)\"""", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "b": "\b", "Z": "\x1a", "%": "\\%", "_": "\\_"}


class NotExecutable(Exception):
    """SQL that cannot run on SQLite with the meaning that it has in its dialect. The text says why."""


class Undetermined(NotExecutable):
    """SQL whose result does not follow from the data: it calls for random numbers."""


class TooLong(NotExecutable):
    """A number with so many digits that no database computes with it."""


class Token(NamedTuple):
    """One token. `text` is what SQLite reads; `key` is a word or a name in lower case, without quotes."""

    kind: str
    text: str
    key: str = ""

    @property
    def is_name(self) -> bool:
        return self.kind in (WORD, NAME)

    def value(self) -> str:
        """The content of a text literal."""
        return self.text[1:-1].replace("''", "'")


def word(text: str) -> Token:
    return Token(WORD, text, text.lower())


def sign(text: str) -> Token:
    return Token(SIGN, text)


def literal(value: str) -> Token:
    return Token(TEXT, "'" + value.replace("'", "''") + "'")


def quoted(name: str) -> Token:
    return Token(NAME, '"' + name.replace('"', '""') + '"', name.lower())


def tokenize(sql: str, dialect: str = SQLITE) -> list[Token]:
    """The tokens of a text without comments. Raises `NotExecutable` for a quote that does not end."""
    tokens: list[Token] = []
    at = 0
    while at < len(sql):
        if dialect == MYSQL and (quoted := _MYSQL_TEXT.match(sql, at)):
            tokens.append(literal(_unescaped(quoted)))
            at = quoted.end()
            continue
        if dialect == MYSQL and sql[at] == "#":
            end = sql.find("\n", at)
            at = len(sql) if end < 0 else end
            continue
        match = _TOKEN.match(sql, at)
        assert match is not None  # the last alternative matches any character
        at = match.end()
        if token := _token(match, dialect):
            tokens.append(token)
    return tokens


def _token(match: re.Match[str], dialect: str) -> Token | None:
    kind, text = match.lastgroup or "", match[0]
    if kind == "space":
        if text.startswith("/*!"):
            raise NotExecutable("a comment that MySQL executes")
        return None
    if kind == "name":
        if text[0] == "[" and dialect == POSTGRESQL:
            raise NotExecutable("an array")
        end = "]" if text[0] == "[" else text[0]
        return quoted(text[1:-1].replace(end * 2, end))
    if kind == "word":
        return word(text)
    if kind == NUMBER and len(text) > _MOST_DIGITS:
        raise TooLong(f"a number of {len(text):,} characters")
    if kind == SIGN and text in "'\"`":
        raise NotExecutable(f"a quote {text} that does not end")
    return Token(kind, text)


def _unescaped(match: re.Match[str]) -> str:
    quote = match[0][0]
    body = match[0][1:-1].replace(quote * 2, quote)
    return re.sub(r"\\(.)", lambda escape: _ESCAPES.get(escape[1], escape[1]), body, flags=re.DOTALL)


def render(tokens: list[Token]) -> str:
    """The SQL of tokens."""
    return " ".join(token.text for token in tokens)


def statements(tokens: list[Token]) -> list[list[Token]]:
    """The statements between semicolons, without empty ones."""
    parts: list[list[Token]] = [[]]
    for token in tokens:
        if token == sign(";"):
            parts.append([])
        else:
            parts[-1].append(token)
    return [part for part in parts if part]


def depths(tokens: list[Token]) -> list[int]:
    """How many brackets are open at each token. An opening bracket and its closing one have the depth outside."""
    depth, levels = 0, []
    for token in tokens:
        closes = token.kind == SIGN and token.text == ")"
        depth -= closes
        levels.append(depth)
        depth += token.kind == SIGN and token.text == "("
    return levels


def closing(tokens: list[Token], opening: int) -> int:
    """The index of the bracket that closes the one at `opening`. Raises `NotExecutable` without one."""
    depth = 0
    for index in range(opening, len(tokens)):
        if tokens[index].kind == SIGN:
            depth += (tokens[index].text == "(") - (tokens[index].text == ")")
            if depth == 0:
                return index
    raise NotExecutable("a bracket that is not closed")


def split(tokens: list[Token], separator: str = ",") -> list[list[Token]]:
    """The parts between separators that are outside of brackets."""
    parts: list[list[Token]] = [[]]
    for token, depth in zip(tokens, depths(tokens), strict=True):
        if depth == 0 and token.kind == SIGN and token.text == separator:
            parts.append([])
        else:
            parts[-1].append(token)
    return parts


def numbers(tokens: list[Token]) -> Iterator[float]:
    """The numbers among tokens."""
    for token in tokens:
        if token.kind == NUMBER and not token.text.startswith("0x"):
            yield float(token.text)


def starts_with(tokens: list[Token], *words: str) -> bool:
    """Whether tokens begin with these words."""
    return len(tokens) >= len(words) and all(
        token.kind == WORD and token.key == key for token, key in zip(tokens, words, strict=False)
    )
