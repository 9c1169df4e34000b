"""Translates queries of MySQL and PostgreSQL to SQLite if their meaning stays the same.

Anything that is not known to mean the same raises `NotExecutable`: a function that is not listed here, arithmetic with
dates, a cast to an unknown type. Functions that SQLite lacks are in `functions.py`; their names begin with `ludus_`.
Queries of SQLite stay as they are, except that the clock stands still.
"""

from __future__ import annotations

from ludus.environments.text_to_sql.operands import KEYWORDS, at_index, casts, intervals, is_sign, operand_of
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


_CLOCK = {"current_timestamp": "ludus_now", "current_date": "ludus_today", "current_time": "ludus_time"}
_CLOCK |= {"localtimestamp": "ludus_now"}
_DATE_VALUED = frozenset("ludus_date ludus_date_add ludus_date_sub ludus_now ludus_today".split())
_NUMBER_VALUED = frozenset("count datediff day hour ludus_date_part minute month quarter timestampdiff year".split())


def translate(
    tokens: list[Token], dialect: str, *, prefixes: frozenset[str] = frozenset(), dates: frozenset[str] = frozenset()
) -> list[Token]:
    """A statement for SQLite. `prefixes` are names of schemas; `dates` are the names of columns that hold dates."""
    tokens = _still_clock(tokens)
    if dialect == SQLITE:
        return tokens
    tokens = _words(_without_prefixes(tokens, prefixes), dialect)
    tokens = casts(_fields(tokens), dialect)
    tokens = intervals(tokens)
    _refuse_date_arithmetic(tokens, dates)
    tokens = _functions(tokens, dialect)
    return _nulls(tokens) if dialect == POSTGRESQL else _division(tokens)


def _still_clock(tokens: list[Token]) -> list[Token]:
    """Replace the words for the current time by functions, which give the time of the database's state."""
    translated: list[Token] = []
    for index, token in enumerate(tokens):
        name = _CLOCK.get(token.key) if token.kind == WORD else None
        if name is None or is_sign(at_index(tokens, index - 1), "."):
            translated.append(token)
        else:
            called = is_sign(at_index(tokens, index + 1), "(")
            translated += [word(name)] if called else [word(name), sign("("), sign(")")]
    return translated


def _without_prefixes(tokens: list[Token], prefixes: frozenset[str]) -> list[Token]:
    """Tables without the name of their schema: `public.orders` is `orders`."""
    translated: list[Token] = []
    index = 0
    while index < len(tokens):
        token = tokens[index]
        if token.is_name and token.key in prefixes and is_sign(at_index(tokens, index + 1), "."):
            index += 2
            continue
        translated.append(token)
        index += 1
    return translated


def _words(tokens: list[Token], dialect: str) -> list[Token]:
    """Operators and words with another name in SQLite."""
    translated: list[Token] = []
    for index, token in enumerate(tokens):
        after = at_index(tokens, index + 1)
        if token.kind == WORD and token.key in ("date", "timestamp", "datetime") and after and after.kind == TEXT:
            continue
        if token.kind == WORD and token.key in ("similar", "div", "xor", "rlike", "regexp", "lateral", "any", "some"):
            raise NotExecutable(f"{token.text.upper()}, which SQLite lacks")
        if is_sign(token, "||") and dialect == MYSQL:
            raise NotExecutable("|| in MySQL, which means OR or joins texts, depending on the server")
        if token.kind == SIGN and token.text in ("~", "@", "?", "#", "^", "{", "}", "[", "]", "$", ":"):
            raise NotExecutable(f"the operator {token.text}")
        if is_sign(token, "<=>"):
            translated.append(word("IS"))
        elif is_sign(token, "&&"):
            translated.append(word("AND"))
        elif token.kind == WORD and token.key == "ilike":
            translated.append(word("MATCH"))  # functions.py defines match()
        elif token.kind == WORD and token.key == "fetch":
            return translated + _fetched(tokens[index:])
        else:
            translated.append(token)
    return translated


def _fetched(tokens: list[Token]) -> list[Token]:
    """`FETCH FIRST 3 ROWS ONLY` as `LIMIT 3`."""
    words = [token.key if token.kind == WORD else token.kind for token in tokens]
    if len(words) == 5 and words[2] == NUMBER and words[4] == "only":
        return [word("LIMIT"), tokens[2]]
    raise NotExecutable("FETCH")


def _fields(tokens: list[Token]) -> list[Token]:
    """`EXTRACT(YEAR FROM d)` and `TIMESTAMPDIFF(DAY, a, b)` with a text for the unit."""
    translated = list(tokens)
    for index in range(len(translated) - 3):
        name, opens, unit, then = translated[index : index + 4]
        if name.kind != WORD or not is_sign(opens, "(") or unit.kind != WORD:
            continue
        if name.key == "extract" and then.kind == WORD and then.key == "from":
            translated[index] = word("ludus_date_part")
            translated[index + 2 : index + 4] = [literal(unit.key), sign(",")]
        elif name.key == "timestampdiff":
            translated[index + 2] = literal(unit.key)
    return translated


def _refuse_date_arithmetic(tokens: list[Token], dates: frozenset[str]) -> None:
    """SQLite would subtract the years of two dates."""

    def is_date(token: Token) -> bool:
        return token.is_name and (token.key in dates or token.key in _DATE_VALUED)

    for index, token in enumerate(tokens):
        if token.kind != SIGN or token.text not in "+-*/" or index == 0:
            continue
        try:
            left = operand_of(list(tokens[:index]))
        except NotExecutable:
            continue  # a sign before a number, or the * of COUNT(*)
        right = tokens[index + 1 : index + 2]
        if is_sign(at_index(tokens, index + 2), ".") or is_sign(at_index(tokens, index + 2), "("):
            end = closing(tokens, index + 2) if is_sign(tokens[index + 2], "(") else index + 3
            right = tokens[index + 1 : end + 1]
        if any(side and any(map(is_date, side)) and side[0].key not in _NUMBER_VALUED for side in (left, right)):
            raise NotExecutable("arithmetic with dates")


def _functions(tokens: list[Token], dialect: str) -> list[Token]:
    renamed, ours = _RENAMED[dialect], _OURS[dialect].split()
    translated = list(tokens)
    tables = {tokens[i].key for i in range(len(tokens) - 1) if tokens[i].is_name and _names_columns(tokens, i)}
    for index, token in enumerate(tokens[:-1]):
        if not token.is_name or not is_sign(tokens[index + 1], "(") or token.key in tables:
            continue
        if token.key in ours and token.kind == WORD:
            translated[index] = word(f"ludus_{token.key}")
        elif token.key in renamed:
            translated[index] = word(renamed[token.key])
        elif token.key in _RANDOM:
            raise Undetermined(f"the function {token.text}")
        elif token.key in ("max", "min") and _arguments(tokens, index + 1) > 1:
            raise NotExecutable(f"{token.text} with several arguments")
        elif token.key not in KEYWORDS and token.key not in _SAME and not token.key.startswith("ludus_"):
            raise NotExecutable(f"the function {token.text}")
    return translated


def _names_columns(tokens: list[Token], index: int) -> bool:
    """Whether the brackets behind a name hold columns, as in `INSERT INTO t (a)` and `WITH t (a) AS (...)`."""
    if not is_sign(tokens[index + 1], "("):
        return False
    before = at_index(tokens, index - 1)
    if before is not None and before.kind == WORD and before.key in ("into", "table", "as"):
        return True
    behind = at_index(tokens, closing(tokens, index + 1) + 1)
    starts = before is None or before.key in ("with", "recursive") or is_sign(before, ",")
    return (
        starts
        and behind is not None
        and behind.kind == WORD
        and behind.key == "as"
        and (is_sign(at_index(tokens, closing(tokens, index + 1) + 2), "("))
    )


def _arguments(tokens: list[Token], opening: int) -> int:
    depth, count = 0, 1
    for token in tokens[opening : closing(tokens, opening)]:
        depth += is_sign(token, "(") - is_sign(token, ")")
        count += depth == 1 and is_sign(token, ",")
    return count


def _division(tokens: list[Token]) -> list[Token]:
    """MySQL's / never cuts off: 5 / 2 is 2.5."""
    translated: list[Token] = []
    for token in tokens:
        translated += [sign("*"), Token(NUMBER, "1.0"), token] if is_sign(token, "/") else [token]
    return translated


def _nulls(tokens: list[Token]) -> list[Token]:
    """PostgreSQL sorts NULL as the largest value, SQLite as the smallest: say it in every ORDER BY."""
    ends = ("limit", "offset", "rows", "range", "groups", "union", "intersect", "except", "fetch", "separator", "for")
    translated: list[Token] = []
    levels: list[bool] = [False]  # for each open bracket, whether an ORDER BY is being read
    for index, token in enumerate(tokens):
        previous = translated[-1] if translated else None
        ends_term = levels[-1] and (
            is_sign(token, ",") or is_sign(token, ")") or (token.kind == WORD and token.key in ends)
        )
        if ends_term and previous is not None and previous.key not in ("first", "last"):
            translated += [word("NULLS"), word("FIRST" if previous.key == "desc" else "LAST")]
        if token.kind == WORD and token.key in ends:
            levels[-1] = False
        if is_sign(token, "("):
            levels.append(False)
        elif is_sign(token, ")") and len(levels) > 1:
            levels.pop()
        translated.append(token)
        if token.kind == WORD and token.key == "by" and index and tokens[index - 1].key == "order":
            levels[-1] = True
    if levels[-1] and translated[-1].key not in ("first", "last"):
        translated += [word("NULLS"), word("FIRST" if translated[-1].key == "desc" else "LAST")]
    return translated
