"""The literals of a query: the values at which its filters change, by the columns that they are compared with."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

from ludus.environments.text_to_sql.sqltext import NUMBER, SIGN, TEXT, WORD, Token

_COMPARES = frozenset("= == <> != < > <= >= <=>".split())
_BETWEEN = ("and", "or", "in", "not", "like", "between", "is", "ilike", "match")
_BEFORE_OTHERS = ("limit", "offset", "interval", "having", "then", "else", "values")
_MOST, _LONGEST, _LARGEST = 50, 200, 10**12
_MOST_ROWS = 120
_AGGREGATES = frozenset("sum avg min max total count group_concat".split())
_CLOCKS = ("ludus_now", "ludus_today", "ludus_time")


class Literals:
    """The literals of SQL by the column that they are compared with, and the columns that are joined.

    `of(name)` are the literals for a column; `loose` are those of the query that belong to no column. `checks` are
    statements that create tables, whose CHECK constraints name values too.
    """

    def __init__(self, tokens: list[Token], checks: list[Token]) -> None:
        self._by_column: dict[str, list[Any]] = {}
        self.loose: list[Any] = []
        self._same: dict[str, str] = {}
        self._read(checks)
        self.loose = []
        self._read(tokens)
        self.uses_clock = any(token.key in _CLOCKS or token.text.lower() == "'now'" for token in tokens)
        texts = [token.text for token in tokens if token.kind in (TEXT, NUMBER)]
        self.numbers = [int(number) for text in texts for number in re.findall(r"\d{1,4}", text)]
        self.calls = {token.key.removeprefix("ludus_") for token, then in pairwise(tokens) if then.text == "("}
        self.calls |= {"mod"} if any(token.text == "%" for token in tokens) else set()
        self.rows_wanted = _rows_wanted(tokens)

    @property
    def aggregates(self) -> bool:
        """Whether the query has a result also where it selects no row."""
        return bool(self.calls & _AGGREGATES)

    def _read(self, tokens: list[Token]) -> None:
        column, aggregated = "", False
        for index, token in enumerate(tokens):
            if token.kind in (TEXT, NUMBER):
                value = _value(token)
                if not _is_usable(value):
                    continue
                if column and len(self.of(column)) < _MOST:
                    self._by_column.setdefault(column, []).append(value)
                if (not column or aggregated) and len(self.loose) < _MOST:
                    self.loose.append(value)
            elif token.is_name and not _is_word(token, *_BETWEEN):
                called = index + 1 < len(tokens) and tokens[index + 1].text == "(" and token.kind == WORD
                column, aggregated = "" if called or _is_word(token, *_BEFORE_OTHERS) else token.key, False
            aggregated = aggregated or token.text == ")"
            if token.kind == SIGN and token.text in _COMPARES:
                self._join(tokens, index)

    def of(self, name: str) -> list[Any]:
        """The literals that a column is compared with."""
        return self._by_column.get(name.lower(), [])

    def group(self, name: str) -> str:
        """One name for all columns that are joined with each other."""
        name = name.lower()
        while self._same.get(name, name) != name:
            name = self._same[name]
        return name

    def _join(self, tokens: list[Token], index: int) -> None:
        if index == 0 or index + 1 >= len(tokens) or not tokens[index - 1].is_name or not tokens[index + 1].is_name:
            return
        right = index + 3 if index + 3 < len(tokens) and tokens[index + 2].text == "." else index + 1
        first, second = self.group(tokens[index - 1].key), self.group(tokens[right].key)
        if first != second:
            self._same[first] = second


def _rows_wanted(tokens: list[Token]) -> int:
    """How many rows a LIMIT and its OFFSET need before they leave one out; 0 if there is none, or if it is large."""
    bounds = [then for token, then in pairwise(tokens) if _is_word(token, "limit", "offset")]
    wanted = sum(
        int(bound.text) for bound in bounds if bound.kind == NUMBER and bound.text.isdigit() and len(bound.text) < 9
    )
    return wanted + wanted // 4 + 5 if 0 < wanted <= _MOST_ROWS else 0


def _is_usable(value: Any) -> bool:
    """Whether a value may stand in a table: a number that is not huge, or a text that is not long."""
    return len(value) <= _LONGEST if isinstance(value, str) else abs(value) <= _LARGEST


def _is_word(token: Token, *words: str) -> bool:
    return token.kind == WORD and token.key in words


def _value(token: Token) -> Any:
    if token.kind == TEXT:
        return token.value()
    if token.text.startswith("0x"):
        return int(token.text, 16)
    return float(token.text) if any(mark in token.text for mark in ".eE") else int(token.text)
