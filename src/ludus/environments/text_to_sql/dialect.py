"""Queries of MySQL and PostgreSQL as queries for SQLite, where the meaning stays the same.

Whatever is not known to mean the same raises `NotExecutable`: a function that is not listed here, arithmetic with
dates, a cast to an unknown type. Functions that SQLite lacks are those of `functions.py`, whose names begin with
`ludus_`. Queries of SQLite stay as they are, except that the clock stands still.
"""

from __future__ import annotations

import re

from ludus.environments.text_to_sql.sqltext import (
    MYSQL,
    NUMBER,
    POSTGRESQL,
    SIGN,
    SQLITE,
    TEXT,
    WORD,
    NotExecutable,
    Token,
    Undetermined,
    closing,
    literal,
    sign,
    word,
)

_KEYWORDS = frozenset(
    "all and as between by case check distinct else except exists filter from full group having in inner insert "
    "intersect into is join left like limit match not offset on or order outer over partition right select set then "
    "union unique update using values when where window with recursive default key references foreign primary "
    "conflict except end returning interval materialized cross natural asc desc delete do nothing replace".split()
)

#: Functions that mean the same in SQLite.
_SAME = frozenset(
    "abs avg cast ceil ceiling coalesce count cume_dist dense_rank exp first_value floor lag last_value lead length "
    "ln lower ltrim max min mod nth_value ntile nullif percent_rank pow power rank replace round row_number rtrim sign "
    "sqrt substr substring sum trim upper".split()
)
_RENAMED = {
    MYSQL: {"if": "iif", "ifnull": "ifnull", "lcase": "lower", "ucase": "upper", "mid": "substr", "instr": "instr"}
    | {"char_length": "length", "character_length": "length", "greatest": "max", "least": "min"}
    | {"group_concat": "group_concat", "date": "ludus_date", "curdate": "ludus_today", "now": "ludus_now"}
    | {"current_timestamp": "ludus_now", "current_date": "ludus_today", "adddate": "ludus_date_add"}
    | {"subdate": "ludus_date_sub", "concat": "ludus_concat"},
    POSTGRESQL: {"char_length": "length", "character_length": "length", "string_agg": "group_concat", "strpos": "instr"}
    | {"bool_or": "max", "bool_and": "min", "now": "ludus_now", "concat": "ludus_concat_known"}
    | {"greatest": "ludus_greatest", "least": "ludus_least", "date": "ludus_date"},
    SQLITE: {},
}
_OURS = {
    MYSQL: "concat_ws date_add date_sub date_format datediff day dayname dayofmonth dayofweek dayofyear hour last_day "
    "left minute month monthname quarter right second substring_index timestampdiff truncate weekday year lpad rpad "
    "reverse",
    POSTGRESQL: "concat_ws date_part date_trunc initcap left lpad reverse right rpad split_part",
    SQLITE: "",
}
_RANDOM = frozenset("rand random uuid gen_random_uuid uuid_generate_v4 randomblob random_bytes".split())
_UNITS = frozenset("second minute hour day week month quarter year".split())
_INTERVAL = re.compile(r"\s*(\d{1,6})\s*([a-z]+?)s?\s*", re.IGNORECASE)
_CLOCK = {"current_timestamp": "ludus_now", "current_date": "ludus_today", "current_time": "ludus_time"}
_CLOCK |= {"localtimestamp": "ludus_now"}
_DATE_VALUED = frozenset("ludus_date ludus_date_add ludus_date_sub ludus_now ludus_today".split())
_NUMBER_VALUED = frozenset("count datediff day hour ludus_date_part minute month quarter timestampdiff year".split())
_INTEGERS = frozenset("int integer bigint smallint signed unsigned int4 int8".split())
_REALS = frozenset("numeric decimal float real double float8 float4 dec".split())
_TEXTS = frozenset("text varchar char character nchar string".split())


def translate(
    tokens: list[Token], dialect: str, *, prefixes: frozenset[str] = frozenset(), dates: frozenset[str] = frozenset()
) -> list[Token]:
    """A statement for SQLite. `prefixes` are names of schemas; `dates` are the names of columns that hold dates."""
    tokens = _still_clock(tokens)
    if dialect == SQLITE:
        return tokens
    tokens = _words(_without_prefixes(tokens, prefixes), dialect)
    tokens = _casts(_fields(tokens), dialect)
    tokens = _intervals(tokens)
    _refuse_date_arithmetic(tokens, dates)
    tokens = _functions(tokens, dialect)
    return _nulls(tokens) if dialect == POSTGRESQL else _division(tokens)


def _is(token: Token | None, text: str) -> bool:
    return token is not None and token.kind == SIGN and token.text == text


def _at(tokens: list[Token], index: int) -> Token | None:
    return tokens[index] if 0 <= index < len(tokens) else None


def _still_clock(tokens: list[Token]) -> list[Token]:
    """Replace the words for the current time by functions, which give the time of the database's state."""
    found: list[Token] = []
    for index, token in enumerate(tokens):
        name = _CLOCK.get(token.key) if token.kind == WORD else None
        if name is None or _is(_at(tokens, index - 1), "."):
            found.append(token)
        else:
            called = _is(_at(tokens, index + 1), "(")
            found += [word(name)] if called else [word(name), sign("("), sign(")")]
    return found


def _without_prefixes(tokens: list[Token], prefixes: frozenset[str]) -> list[Token]:
    """Tables without the name of their schema: `public.orders` is `orders`."""
    found: list[Token] = []
    index = 0
    while index < len(tokens):
        token = tokens[index]
        if token.is_name and token.key in prefixes and _is(_at(tokens, index + 1), "."):
            index += 2
            continue
        found.append(token)
        index += 1
    return found


def _words(tokens: list[Token], dialect: str) -> list[Token]:
    """Operators and words with another name in SQLite."""
    found: list[Token] = []
    for index, token in enumerate(tokens):
        after = _at(tokens, index + 1)
        if token.kind == WORD and token.key in ("date", "timestamp", "datetime") and after and after.kind == TEXT:
            continue
        if token.kind == WORD and token.key in ("similar", "div", "xor", "rlike", "regexp", "lateral", "any", "some"):
            raise NotExecutable(f"{token.text.upper()}, which SQLite lacks")
        if _is(token, "||") and dialect == MYSQL:
            raise NotExecutable("|| in MySQL, which means OR or joins texts, depending on the server")
        if token.kind == SIGN and token.text in ("~", "@", "?", "#", "^", "{", "}", "[", "]", "$", ":"):
            raise NotExecutable(f"the operator {token.text}")
        if _is(token, "<=>"):
            found.append(word("IS"))
        elif _is(token, "&&"):
            found.append(word("AND"))
        elif token.kind == WORD and token.key == "ilike":
            found.append(word("MATCH"))  # functions.py defines match()
        elif token.kind == WORD and token.key == "fetch":
            return found + _fetched(tokens[index:])
        else:
            found.append(token)
    return found


def _fetched(tokens: list[Token]) -> list[Token]:
    """`FETCH FIRST 3 ROWS ONLY` as `LIMIT 3`."""
    words = [token.key if token.kind == WORD else token.kind for token in tokens]
    if len(words) == 5 and words[2] == NUMBER and words[4] == "only":
        return [word("LIMIT"), tokens[2]]
    raise NotExecutable("FETCH")


def _fields(tokens: list[Token]) -> list[Token]:
    """`EXTRACT(YEAR FROM d)` and `TIMESTAMPDIFF(DAY, a, b)` with a text for the unit."""
    found = list(tokens)
    for index in range(len(found) - 3):
        name, opens, unit, then = found[index : index + 4]
        if name.kind != WORD or not _is(opens, "(") or unit.kind != WORD:
            continue
        if name.key == "extract" and then.kind == WORD and then.key == "from":
            found[index] = word("ludus_date_part")
            found[index + 2 : index + 4] = [literal(unit.key), sign(",")]
        elif name.key == "timestampdiff":
            found[index + 2] = literal(unit.key)
    return found


def _operand(tokens: list[Token]) -> list[Token]:
    """Take the operand at the end of tokens away: a literal, a name with its table, a call or brackets."""
    at = len(tokens) - 1
    if at < 0:
        raise NotExecutable("an operator without an operand")
    if _is(tokens[at], ")"):
        depth = 0
        while at >= 0:
            depth += _is(tokens[at], ")") - _is(tokens[at], "(")
            if depth == 0:
                break
            at -= 1
        before = _at(tokens, at - 1)
        if before is not None and before.kind == WORD and before.key not in _KEYWORDS - {"left", "right"}:
            at -= 1
    elif (tokens[at].kind == WORD and tokens[at].key in _KEYWORDS) or not (
        tokens[at].is_name or tokens[at].kind in (TEXT, NUMBER)
    ):
        raise NotExecutable("an operator without an operand")
    while at >= 2 and _is(tokens[at - 1], ".") and tokens[at - 2].is_name:
        at -= 2
    taken = tokens[at:]
    del tokens[at:]
    return taken


def _type_at(tokens: list[Token], at: int) -> tuple[str, list[Token], int]:
    """The type that begins here: its first word, its arguments, and the index behind it."""
    first = _at(tokens, at)
    if first is None or first.kind != WORD:
        raise NotExecutable("a cast without a type")
    at += 1
    while (more := _at(tokens, at)) and more.kind == WORD and more.key in ("precision", "varying", "integer"):
        at += 1
    arguments: list[Token] = []
    if _is(_at(tokens, at), "("):
        end = closing(tokens, at)
        arguments, at = tokens[at + 1 : end], end + 1
    if _is(_at(tokens, at), "["):
        raise NotExecutable("an array")
    return first.key, arguments, at


def _casts(tokens: list[Token], dialect: str) -> list[Token]:
    """`CAST(x AS type)` and `x::type`."""
    found: list[Token] = []
    index = 0
    while index < len(tokens):
        token = tokens[index]
        if _is(token, "::"):
            name, arguments, index = _type_at(tokens, index + 1)
            operand = _operand(found)
            found += _cast(operand, name, arguments, dialect)
        elif token.kind == WORD and token.key == "cast" and _is(_at(tokens, index + 1), "("):
            end = closing(tokens, index + 1)
            inner = tokens[index + 2 : end]
            level, split_at = 0, -1
            for place, each in enumerate(inner):
                level += _is(each, "(") - _is(each, ")")
                if level == 0 and each.kind == WORD and each.key == "as":
                    split_at = place
            if split_at < 0:
                raise NotExecutable("a cast without a type")
            name, arguments, behind = _type_at(inner, split_at + 1)
            if behind != len(inner):
                raise NotExecutable(f"a cast to {name}")
            found += _cast(_casts(inner[:split_at], dialect), name, arguments, dialect)
            index = end + 1
        else:
            found.append(token)
            index += 1
    return found


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


def _intervals(tokens: list[Token]) -> list[Token]:
    """`d - INTERVAL '30 days'` and `DATE_SUB(d, INTERVAL 30 DAY)` as calls with a number and a unit."""
    found: list[Token] = []
    index = 0
    while index < len(tokens):
        token = tokens[index]
        if token.kind != WORD or token.key != "interval":
            found.append(token)
            index += 1
            continue
        amount, unit, index = _interval(tokens, index + 1)
        before = found.pop() if found else sign("")
        if _is(before, ","):
            found += [before, *amount, sign(","), literal(unit)]
        elif before.kind == SIGN and before.text in "+-" and before.text:
            operand = _operand(found)
            name = "ludus_date_add" if before.text == "+" else "ludus_date_sub"
            found += [word(name), sign("("), *operand, sign(","), *amount, sign(","), literal(unit), sign(")")]
        else:
            raise NotExecutable("an interval that is neither added nor subtracted")
    return found


def _interval(tokens: list[Token], at: int) -> tuple[list[Token], str, int]:
    first = _at(tokens, at)
    unit = _at(tokens, at + 1)
    found = _INTERVAL.fullmatch(first.value()) if first is not None and first.kind == TEXT else None
    if found is not None and found[2].lower() in _UNITS:
        return [Token(NUMBER, found[1])], found[2].lower(), at + 1
    if first is not None and first.kind in (NUMBER, TEXT, WORD) and unit is not None and unit.key in _UNITS:
        if first.kind != TEXT:
            return [first], unit.key, at + 2
        if first.value().isascii() and first.value().isdigit():
            return [Token(NUMBER, first.value())], unit.key, at + 2
    raise NotExecutable("an interval of several units")


def _refuse_date_arithmetic(tokens: list[Token], dates: frozenset[str]) -> None:
    """SQLite would subtract the years of two dates."""

    def is_date(token: Token) -> bool:
        return token.is_name and (token.key in dates or token.key in _DATE_VALUED)

    for index, token in enumerate(tokens):
        if token.kind != SIGN or token.text not in "+-*/" or index == 0:
            continue
        try:
            left = _operand(list(tokens[:index]))
        except NotExecutable:
            continue  # a sign before a number, or the * of COUNT(*)
        right = tokens[index + 1 : index + 2]
        if _is(_at(tokens, index + 2), ".") or _is(_at(tokens, index + 2), "("):
            end = closing(tokens, index + 2) if _is(tokens[index + 2], "(") else index + 3
            right = tokens[index + 1 : end + 1]
        if any(side and any(map(is_date, side)) and side[0].key not in _NUMBER_VALUED for side in (left, right)):
            raise NotExecutable("arithmetic with dates")


def _functions(tokens: list[Token], dialect: str) -> list[Token]:
    renamed, ours = _RENAMED[dialect], _OURS[dialect].split()
    found = list(tokens)
    tables = {tokens[i].key for i in range(len(tokens) - 1) if tokens[i].is_name and _names_columns(tokens, i)}
    for index, token in enumerate(tokens[:-1]):
        if not token.is_name or not _is(tokens[index + 1], "(") or token.key in tables:
            continue
        if token.key in ours and token.kind == WORD:
            found[index] = word(f"ludus_{token.key}")
        elif token.key in renamed:
            found[index] = word(renamed[token.key])
        elif token.key in _RANDOM:
            raise Undetermined(f"the function {token.text}")
        elif token.key in ("max", "min") and _arguments(tokens, index + 1) > 1:
            raise NotExecutable(f"{token.text} with several arguments")
        elif token.key not in _KEYWORDS and token.key not in _SAME and not token.key.startswith("ludus_"):
            raise NotExecutable(f"the function {token.text}")
    return found


def _names_columns(tokens: list[Token], index: int) -> bool:
    """Whether the brackets behind a name hold columns, as in `INSERT INTO t (a)` and `WITH t (a) AS (...)`."""
    if not _is(tokens[index + 1], "("):
        return False
    before = _at(tokens, index - 1)
    if before is not None and before.kind == WORD and before.key in ("into", "table", "as"):
        return True
    behind = _at(tokens, closing(tokens, index + 1) + 1)
    starts = before is None or before.key in ("with", "recursive") or _is(before, ",")
    return (
        starts
        and behind is not None
        and behind.kind == WORD
        and behind.key == "as"
        and (_is(_at(tokens, closing(tokens, index + 1) + 2), "("))
    )


def _arguments(tokens: list[Token], opening: int) -> int:
    depth, count = 0, 1
    for token in tokens[opening : closing(tokens, opening)]:
        depth += _is(token, "(") - _is(token, ")")
        count += depth == 1 and _is(token, ",")
    return count


def _division(tokens: list[Token]) -> list[Token]:
    """MySQL's / never cuts off: 5 / 2 is 2.5."""
    found: list[Token] = []
    for token in tokens:
        found += [sign("*"), Token(NUMBER, "1.0"), token] if _is(token, "/") else [token]
    return found


def _nulls(tokens: list[Token]) -> list[Token]:
    """PostgreSQL sorts NULL as the largest value, SQLite as the smallest: say it in every ORDER BY."""
    ends = ("limit", "offset", "rows", "range", "groups", "union", "intersect", "except", "fetch", "separator", "for")
    found: list[Token] = []
    levels: list[bool] = [False]  # for each open bracket, whether an ORDER BY is being read
    for index, token in enumerate(tokens):
        previous = found[-1] if found else None
        ends_term = levels[-1] and (_is(token, ",") or _is(token, ")") or (token.kind == WORD and token.key in ends))
        if ends_term and previous is not None and previous.key not in ("first", "last"):
            found += [word("NULLS"), word("FIRST" if previous.key == "desc" else "LAST")]
        if token.kind == WORD and token.key in ends:
            levels[-1] = False
        if _is(token, "("):
            levels.append(False)
        elif _is(token, ")") and len(levels) > 1:
            levels.pop()
        found.append(token)
        if token.kind == WORD and token.key == "by" and index and tokens[index - 1].key == "order":
            levels[-1] = True
    if levels[-1] and found[-1].key not in ("first", "last"):
        found += [word("NULLS"), word("FIRST" if found[-1].key == "desc" else "LAST")]
    return found
