"""The ties of a gold query: their order, which of them a LIMIT keeps, and which of them is number 1.

`Shape.of` reads the outermost SELECT: its sort keys, its LIMIT, and the same query without the LIMIT and with the sort
keys as further columns, so that ties can be seen. `rivals` are queries that settle ties differently: where one of them
gives another result, the state of the database does not determine the gold result, and decides nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from ludus.environments.text_to_sql.sqltext import NUMBER, WORD, Token, depths, render, sign, split, starts_with, word

_SET_OPERATORS = ("union", "intersect", "except")
_ENDS = ("asc", "desc", "nulls", "first", "last")


@dataclass(frozen=True)
class Shape:
    """The outermost SELECT of a query.

    `unlimited` is the query without its LIMIT, `keyed` the same with its sort keys as further columns; None if that
    cannot be written. `known` is False if the keys or the limit could not be read.
    """

    ordered: bool
    known: bool
    unlimited: str
    keyed: str | None = None
    places: tuple[int, ...] = ()
    keys: int = 0
    limit: int | None = None
    offset: int = 0
    folds_case: bool = False

    @classmethod
    def of(cls, tokens: list[Token], folds_case: bool = False) -> Shape:
        """Read a SELECT for SQLite."""
        levels = depths(tokens)
        outer = [(index, token.key) for index, token in enumerate(tokens) if levels[index] == 0 and token.kind == WORD]
        order = next((at for at, key in reversed(outer) if key == "order"), None)
        limit = next((at for at, key in reversed(outer) if key == "limit"), None)
        if limit is not None and order is not None and order > limit:
            return cls(True, False, render(tokens))
        body = tokens[:limit]
        bounds = _bounds(tokens[limit + 1 :]) if limit is not None else (None, 0)
        if bounds is None:
            return cls(order is not None, False, render(tokens))
        folds_case = folds_case or any(token.key == "nocase" for token in tokens[order or len(tokens) :])
        shape = cls(order is not None, True, render(body), limit=bounds[0], offset=bounds[1], folds_case=folds_case)
        if order is None:
            return shape
        return _with_keys(shape, body, order, [(at, key) for at, key in outer if at < order])


def _bounds(tokens: list[Token]) -> tuple[int | None, int] | None:
    """The limit and the offset of `3`, `3 OFFSET 2` and `2, 3`; None if they are no plain numbers."""
    values = [int(token.text) for token in tokens if _is_whole(token)]
    others = [token for token in tokens if token.kind != NUMBER]
    if len(tokens) == 1 and len(values) == 1:
        return values[0], 0
    if len(tokens) == 3 and len(values) == 2 and others == [sign(",")]:
        return values[1], values[0]
    if len(tokens) == 3 and len(values) == 2 and others[0].key == "offset":
        return values[0], values[1]
    return None


def _with_keys(shape: Shape, body: list[Token], order: int, outer: list[tuple[int, str]]) -> Shape:
    terms = [_bare(term) for term in split(body[order + 2 :])]
    select = next((at for at, key in outer if key == "select"), None)
    if select is None or not all(terms):
        return _replace(shape, known=False)
    end = next((at for at, key in outer if at > select and key == "from"), order)
    compound = any(key in _SET_OPERATORS for _, key in outer)
    distinct = starts_with(body[select + 1 :], "distinct")
    items = [_item(item) for item in split(body[select + 1 + distinct : end])]
    stars = any(expression and expression[-1].text == "*" and len(expression) in (1, 3) for expression, _ in items)
    places: list[int] = []
    hidden: list[list[Token]] = []
    for term in terms:
        place = _place(term, items, stars)
        if place is not None:
            places.append(place)
        else:
            hidden.append(_without_aliases(term, items))
    if hidden and (compound or distinct or (stars and places)):
        return _replace(shape, known=False)
    if stars and any(place < 0 for place in places):
        return _replace(shape, known=False)
    extra = [token for term in hidden for token in (sign(","), sign("("), *term, sign(")"))]
    keyed = render([*body[:end], *extra, *body[end:]])
    return _replace(shape, keyed=keyed, places=tuple(places), keys=len(hidden))


def _replace(shape: Shape, **changes: object) -> Shape:
    return Shape(**{**shape.__dict__, **changes})


def _bare(term: list[Token]) -> list[Token]:
    """A sort term without its direction."""
    end = len(term)
    while end and term[end - 1].kind == WORD and term[end - 1].key in _ENDS:
        end -= 1
    if end >= 2 and term[end - 2].key == "collate":
        end -= 2
    return term[:end]


def _item(tokens: list[Token]) -> tuple[list[Token], str]:
    """An item of a SELECT: its expression and its alias."""
    if len(tokens) >= 3 and tokens[-2].key == "as" and tokens[-2].kind == WORD:
        return tokens[:-2], tokens[-1].key
    behind = len(tokens) >= 2 and (tokens[-2].is_name or tokens[-2].text == ")")
    if behind and tokens[-1].is_name and tokens[-1].key != "end":
        return tokens[:-1], tokens[-1].key
    name = tokens[-1].key if tokens and tokens[-1].is_name else ""
    return tokens, name


def _is_whole(token: Token) -> bool:
    return token.kind == NUMBER and token.text.isdigit() and len(token.text) < 19


def _place(term: list[Token], items: list[tuple[list[Token], str]], stars: bool) -> int | None:
    """The output column that a sort term names by its number, its alias or its expression."""
    if len(term) == 1 and _is_whole(term[0]):
        return int(term[0].text) - 1
    if stars:
        return None
    if len(term) == 1 and term[0].is_name:
        places = [index for index, (_, alias) in enumerate(items) if alias == term[0].key]
        if places:
            return places[0]
    texts = [_comparable(expression) for expression, _ in items]
    return texts.index(_comparable(term)) if _comparable(term) in texts else None


def _comparable(tokens: list[Token]) -> list[str]:
    return [token.key or token.text for token in tokens]


def _without_aliases(term: list[Token], items: list[tuple[list[Token], str]]) -> list[Token]:
    """A sort term in which each alias is replaced by its expression, since a SELECT cannot read its own aliases."""
    aliases = {alias: expression for expression, alias in items if len(expression) > 1 or expression[0].key != alias}
    replaced: list[Token] = []
    for index, token in enumerate(term):
        beside = [term[at].text for at in (index - 1, index + 1) if 0 <= at < len(term)]
        if token.is_name and token.key in aliases and "." not in beside and beside[-1:] != ["("]:
            replaced += [sign("("), *aliases[token.key], sign(")")]
        else:
            replaced.append(token)
    return replaced


def rivals(tokens: list[Token]) -> list[str]:
    """The query with its inner ties settled in other ways."""
    queries = []
    ranked = [word("RANK") if token.kind == WORD and token.key == "row_number" else token for token in tokens]
    if ranked != tokens:
        queries.append(render(ranked))
    if (turned := _turned(tokens)) != tokens:
        queries.append(render(turned))
    return queries


def _turned(tokens: list[Token]) -> list[Token]:
    """Every inner `GROUP BY g ... ORDER BY x LIMIT n` with `g DESC` as its last sort term."""
    levels = depths(tokens)
    turned: list[Token] = []
    for index, token in enumerate(tokens):
        if token.kind == WORD and token.key == "limit" and levels[index] > 0:
            turned += _tie_break(tokens, levels, index)
        turned.append(token)
    return turned


def _tie_break(tokens: list[Token], levels: list[int], limit: int) -> list[Token]:
    group = order = None
    for index in range(limit - 1, -1, -1):
        if levels[index] < levels[limit]:
            break
        if levels[index] == levels[limit] and tokens[index].kind == WORD:
            order = index if tokens[index].key == "order" and order is None else order
            group = index if tokens[index].key == "group" and group is None else group
            if tokens[index].key == "select":
                break
    if group is None or order is None or group > order:
        return []
    end = next((at for at in range(group, order) if levels[at] == levels[limit] and tokens[at].key == "having"), order)
    terms = split(tokens[group + 2 : end])
    return [token for term in terms for token in (sign(","), *term, word("DESC"))]
