"""Casts and intervals, whose operand stands before them: `x::INT`, `d - INTERVAL '30 days'`."""

from __future__ import annotations

import re

from ludus.environments.text_to_sql.sqltext import (
    MYSQL,
    NUMBER,
    SIGN,
    TEXT,
    WORD,
    NotExecutable,
    Token,
    closing,
    literal,
    sign,
    word,
)

_UNITS = frozenset("second minute hour day week month quarter year".split())
_INTERVAL = re.compile(r"\s*(\d{1,6})\s*([a-z]+?)s?\s*", re.IGNORECASE)
_INTEGERS = frozenset("int integer bigint smallint signed unsigned int4 int8".split())
_REALS = frozenset("numeric decimal float real double float8 float4 dec".split())
_TEXTS = frozenset("text varchar char character nchar string".split())
KEYWORDS = frozenset(
    "all and as between by case check distinct else except exists filter from full group having in inner insert "
    "intersect into is join left like limit match not offset on or order outer over partition right select set then "
    "union unique update using values when where window with recursive default key references foreign primary "
    "conflict except end returning interval materialized cross natural asc desc delete do nothing replace".split()
)


def is_sign(token: Token | None, text: str) -> bool:
    return token is not None and token.kind == SIGN and token.text == text


def at_index(tokens: list[Token], index: int) -> Token | None:
    return tokens[index] if 0 <= index < len(tokens) else None


def operand_of(tokens: list[Token]) -> list[Token]:
    """Take the operand at the end of tokens away: a literal, a name with its table, a call or brackets."""
    at = len(tokens) - 1
    if at < 0:
        raise NotExecutable("an operator without an operand")
    if is_sign(tokens[at], ")"):
        depth = 0
        while at >= 0:
            depth += is_sign(tokens[at], ")") - is_sign(tokens[at], "(")
            if depth == 0:
                break
            at -= 1
        before = at_index(tokens, at - 1)
        if before is not None and before.kind == WORD and before.key not in KEYWORDS - {"left", "right"}:
            at -= 1
    elif (tokens[at].kind == WORD and tokens[at].key in KEYWORDS) or not (
        tokens[at].is_name or tokens[at].kind in (TEXT, NUMBER)
    ):
        raise NotExecutable("an operator without an operand")
    while at >= 2 and is_sign(tokens[at - 1], ".") and tokens[at - 2].is_name:
        at -= 2
    taken = tokens[at:]
    del tokens[at:]
    return taken


def _type_at(tokens: list[Token], at: int) -> tuple[str, list[Token], int]:
    """The type that begins here: its first word, its arguments, and the index behind it."""
    first = at_index(tokens, at)
    if first is None or first.kind != WORD:
        raise NotExecutable("a cast without a type")
    at += 1
    while (more := at_index(tokens, at)) and more.kind == WORD and more.key in ("precision", "varying", "integer"):
        at += 1
    arguments: list[Token] = []
    if is_sign(at_index(tokens, at), "("):
        end = closing(tokens, at)
        arguments, at = tokens[at + 1 : end], end + 1
    if is_sign(at_index(tokens, at), "["):
        raise NotExecutable("an array")
    return first.key, arguments, at


def casts(tokens: list[Token], dialect: str) -> list[Token]:
    """`CAST(x AS type)` and `x::type`."""
    translated: list[Token] = []
    index = 0
    while index < len(tokens):
        token = tokens[index]
        if is_sign(token, "::"):
            name, arguments, index = _type_at(tokens, index + 1)
            operand = operand_of(translated)
            translated += _cast(operand, name, arguments, dialect)
        elif token.kind == WORD and token.key == "cast" and is_sign(at_index(tokens, index + 1), "("):
            end = closing(tokens, index + 1)
            inner = tokens[index + 2 : end]
            level, split_at = 0, -1
            for place, part in enumerate(inner):
                level += is_sign(part, "(") - is_sign(part, ")")
                if level == 0 and part.kind == WORD and part.key == "as":
                    split_at = place
            if split_at < 0:
                raise NotExecutable("a cast without a type")
            name, arguments, behind = _type_at(inner, split_at + 1)
            if behind != len(inner):
                raise NotExecutable(f"a cast to {name}")
            translated += _cast(casts(inner[:split_at], dialect), name, arguments, dialect)
            index = end + 1
        else:
            translated.append(token)
            index += 1
    return translated


def _cast(operand: list[Token], name: str, arguments: list[Token], dialect: str) -> list[Token]:
    def call(function: str, *more: Token) -> list[Token]:
        return [word(function), sign("("), *operand, *more, sign(")")]

    if name in _TEXTS and not arguments:
        return call("CAST", word("AS"), word("TEXT"))
    if name in _REALS:
        if name in ("numeric", "decimal", "dec") and (arguments or dialect == MYSQL):
            digits = arguments[-1] if len(arguments) == 3 else Token(NUMBER, "0")
            return call("ROUND", sign("*"), Token(NUMBER, "1.0"), sign(","), digits)
        return call("CAST", word("AS"), word("REAL"))
    if name in _INTEGERS:
        return [word("CAST"), sign("("), *call("ROUND"), word("AS"), word("INTEGER"), sign(")")]
    if name == "date":
        return call("ludus_date")
    if name in ("timestamp", "datetime") and not arguments:
        return [sign("("), *operand, sign(")")]
    raise NotExecutable(f"a cast to {name}")


def intervals(tokens: list[Token]) -> list[Token]:
    """`d - INTERVAL '30 days'` and `DATE_SUB(d, INTERVAL 30 DAY)` as calls with a number and a unit."""
    translated: list[Token] = []
    index = 0
    while index < len(tokens):
        token = tokens[index]
        if token.kind != WORD or token.key != "interval":
            translated.append(token)
            index += 1
            continue
        amount, unit, index = _interval(tokens, index + 1)
        before = translated.pop() if translated else sign("")
        if is_sign(before, ","):
            translated += [before, *amount, sign(","), literal(unit)]
        elif before.kind == SIGN and before.text in "+-" and before.text:
            operand = operand_of(translated)
            name = "ludus_date_add" if before.text == "+" else "ludus_date_sub"
            translated += [word(name), sign("("), *operand, sign(","), *amount, sign(","), literal(unit), sign(")")]
        else:
            raise NotExecutable("an interval that is neither added nor subtracted")
    return translated


def _interval(tokens: list[Token], at: int) -> tuple[list[Token], str, int]:
    first = at_index(tokens, at)
    unit = at_index(tokens, at + 1)
    match = _INTERVAL.fullmatch(first.value()) if first is not None and first.kind == TEXT else None
    if match is not None and match[2].lower() in _UNITS:
        return [Token(NUMBER, match[1])], match[2].lower(), at + 1
    if first is not None and first.kind in (NUMBER, TEXT, WORD) and unit is not None and unit.key in _UNITS:
        if first.kind != TEXT:
            return [first], unit.key, at + 2
        if first.value().isascii() and first.value().isdigit():
            return [Token(NUMBER, first.value())], unit.key, at + 2
    raise NotExecutable("an interval of several units")
