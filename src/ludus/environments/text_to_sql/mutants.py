"""Queries that differ from the gold query in one place, as a nearly right answer would.

Generated states that distinguish them from the gold query are used: without such a state a wrong border, a missing
DISTINCT or another join would go unnoticed. A mutant that no state tells apart may mean the same as the gold query.
"""

from __future__ import annotations

from ludus.environments.text_to_sql.sqltext import SIGN, TEXT, WORD, Token, render, sign, word

_MOST = 16
_BORDERS = {">": ">=", ">=": ">", "<": "<=", "<=": "<"}
_JOINS = ("left", "inner", "outer", "right", "full", "cross", "natural")
_OTHERS = {"sum": "max", "avg": "max", "max": "min", "min": "max", "desc": "asc", "union": "union all", "and": "or"}


def mutants(tokens: list[Token]) -> list[str]:
    """A query with each change of one token that still is a query."""
    queries: list[str] = []
    for index, token in enumerate(tokens):
        before = tokens[index - 1].key if index else ""
        changed: list[list[Token]] = []
        if token.kind == SIGN and token.text in _BORDERS:
            changed.append([sign(_BORDERS[token.text])])
        elif token.text == "=" and index + 1 < len(tokens) and tokens[index + 1].kind == TEXT:
            changed.append([word("LIKE")])  # which ignores case
        elif (token.kind == WORD and token.key == "distinct") or (
            token.kind == WORD and token.key == "left" and _next(tokens, index) == "join"
        ):
            changed.append([])
        elif token.kind == WORD and token.key == "join" and before not in _JOINS:
            changed.append([word("LEFT"), word("JOIN")])
        elif token.kind == WORD and token.key in _OTHERS and not (token.key == "and" and _is_range(tokens, index)):
            changed.append([word(_OTHERS[token.key])])
        queries += [render([*tokens[:index], *replacement, *tokens[index + 1 :]]) for replacement in changed]
    return [query for query in dict.fromkeys(queries) if query != render(tokens)][:_MOST]


def _next(tokens: list[Token], index: int) -> str:
    return tokens[index + 1].key if index + 1 < len(tokens) else ""


def _is_range(tokens: list[Token], index: int) -> bool:
    """Whether an AND belongs to a BETWEEN."""
    return any(token.kind == WORD and token.key == "between" for token in tokens[max(0, index - 4) : index])
