"""By how much a cell of each gold column may differ: half a unit where the gold query rounds it, else nothing."""

from __future__ import annotations

from collections.abc import Sequence

from ludus.environments.text_to_sql.comparing import Expected
from ludus.environments.text_to_sql.sqltext import NUMBER, WORD, Token, closing, depths, sign, split

#: Coarser rounding is part of the answer; finer rounding is noise.
_FEWEST, _MOST = 2, 9


def tolerances(gold: list[Token], results: Sequence[Expected]) -> list[float]:
    """A tolerance for each column of the gold results.

    A column is rounded if its expression says so and if all of its numbers are; where no expression of the outermost
    SELECT rounds, a subquery may, and the numbers alone tell.
    """
    width = results[0].width if results else 0
    digits = [count for count in _rounded_to(gold) if _FEWEST <= count <= _MOST]
    if not digits:
        return [0.0] * width
    items = _items(gold)
    own = [_rounded_to(item) for item in items]
    named = len(items) == width and any(own)
    allowed = []
    for column in range(width):
        fitting = [count for count in (own[column] if named else digits) if _FEWEST <= count <= _MOST]
        cells = [row[column] for expected in results for row in expected.rows if isinstance(row[column], float)]
        fitting = [count for count in fitting if cells and all(round(cell, count) == cell for cell in cells)]
        allowed.append(0.5000001 * 10.0 ** -min(fitting) if fitting else 0.0)
    return allowed


def _rounded_to(tokens: list[Token]) -> list[int]:
    """The numbers of digits to which calls of ROUND in these tokens round."""
    digits = []
    for index, token in enumerate(tokens[:-1]):
        if token.kind == WORD and token.key == "round" and tokens[index + 1] == sign("("):
            arguments = split(tokens[index + 2 : closing(tokens, index + 1)])
            last = arguments[-1]
            if len(arguments) == 2 and len(last) == 1 and last[0].kind == NUMBER and last[0].text.isdigit():
                digits.append(int(last[0].text[:4]))
    return digits


def _items(tokens: list[Token]) -> list[list[Token]]:
    """The expressions of the outermost SELECT; none if there is no such SELECT."""
    levels = depths(tokens)
    outer = [(at, token.key) for at, token in enumerate(tokens) if levels[at] == 0 and token.kind == WORD]
    start = next((at for at, key in outer if key == "select"), None)
    if start is None:
        return []
    return split(tokens[start + 1 : next((at for at, key in outer if at > start and key == "from"), len(tokens))])
