"""The SQL in an answer: the last fenced block that holds SQL, else the first statement in the text."""

from __future__ import annotations

import re

_LANGUAGES = ("sql", "sqlite", "sqlite3", "mysql", "postgresql", "postgres", "pgsql", "psql")
_STARTS = r"SELECT|INSERT|UPDATE|DELETE|WITH"
_BEGINS = re.compile(rf"\s*(?:(?:--[^\n]*+|/\*(?:[^*]|\*(?!/))*+\*/)\s*+)*+\(*\s*(?:{_STARTS})\b", re.IGNORECASE)
_STATEMENT = re.compile(
    r"\b(?:SELECT\s|INSERT\s+INTO\s|UPDATE\s+\S+\s+SET\s|DELETE\s+FROM\s|WITH\s+(?:RECURSIVE\s+)?[\w\"`]+\s*(?:\([^()]*\)\s*)?AS\b)",
    re.IGNORECASE,
)
_COMPAT_STATEMENT = re.compile(rf"(?:{_STARTS})\s", re.IGNORECASE)
_FENCE = "```"


def extract_sql(text: str, *, compat: bool = False) -> str | None:
    """The SQL of an answer with one semicolon at its end, None without any. `compat` reads as the reference does."""
    sql = _compat(text) if compat else _in_fence(text) or _in_prose(text)
    body = (sql or "").strip().rstrip(";").rstrip()
    return f"{body};" if body else None


def _in_fence(text: str) -> str | None:
    """The last fenced block named after a dialect of SQL, else the last other one that begins like a statement."""
    named = plain = None
    for info, body in _blocks(text):
        if info in _LANGUAGES:
            named = body
        elif _BEGINS.match(f"{info}\n{body}" if info.upper() in _STARTS.split("|") else body):
            plain = f"{info} {body}" if info.upper() in _STARTS.split("|") else body
    return named if named is not None else plain


def _blocks(text: str) -> list[tuple[str, str]]:
    """Every fenced block: the word behind its opening fence, and its content. The last one may lack its end."""
    parts = text.split(_FENCE)
    blocks = []
    for part in parts[1::2]:
        info = re.match(r"[\w+-]*", part)
        assert info is not None
        blocks.append((info[0].lower(), part[info.end() :]))
    return blocks


def _in_prose(text: str) -> str | None:
    """The first statement, up to its semicolon."""
    start = _STATEMENT.search(text)
    return None if start is None else text[start.start() : _end(text, start.start())]


def _end(text: str, at: int) -> int:
    """The first semicolon that is in no quotes, else the end of the text."""
    quote = ""
    for index in range(at, len(text)):
        letter = text[index]
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"`":
            quote = letter
        elif letter == ";":
            return index
    return len(text)


def _compat(text: str) -> str | None:
    """As the reference: a fence named `sql...`, a fence that begins with a keyword, or from a keyword to the last ;."""
    fenced = re.findall(r"```sql(.*?)```", text, re.DOTALL | re.IGNORECASE)
    if fenced:
        return str(fenced[-1])
    plain = [body for body in re.findall(r"```(.*?)```", text, re.DOTALL) if _BEGINS.match(body)]
    if plain:
        return str(plain[-1])
    start = _COMPAT_STATEMENT.search(text)
    if start is None:
        return None
    end = text.rfind(";", start.start())
    return text[start.start() : end if end > 0 else len(text)]
