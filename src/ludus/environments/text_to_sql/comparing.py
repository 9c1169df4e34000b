"""Whether a query's results are the gold results: the same rows as often, in the order that the gold query demands.

Columns may come in another order, the same in all results. Decimals may differ in the last digits, and by half a unit
in a column that the gold query rounds. `Expected` knows which rows are interchangeable: all of them without ORDER BY,
ties with one.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

Row = tuple[Any, ...]

_MOST_MAPPINGS = 500
_MOST_PAIRS = 250_000
_MIDNIGHT = re.compile(r"\d{4}-\d\d-\d\d 00:00:00")


@dataclass(frozen=True)
class Expected:
    """A gold result: the rows `start` to `stop` of `groups`, which are lists of interchangeable rows in order."""

    width: int
    groups: list[list[Row]]
    start: int
    stop: int
    #: False if the ties could not be read, so that another order of the rows may be right too.
    certain: bool = True

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def whole(self) -> bool:
        """Whether the result is exactly the rows of the groups."""
        return self.start == 0 and self.stop == sum(map(len, self.groups))

    @property
    def rows(self) -> list[Row]:
        """All rows in order."""
        return [row for group in self.groups for row in group]


def same_cell(left: Any, right: Any, tolerance: float = 0.0) -> bool:
    """Whether two values are the same. Numbers of any type are compared by value; a text is never a number."""
    if isinstance(left, float) or isinstance(right, float):
        if not isinstance(left, (int, float)) or not isinstance(right, (int, float)):
            return False
        try:
            return math.isclose(left, right, rel_tol=1e-9, abs_tol=max(1e-9, tolerance))
        except OverflowError:
            return False
    if isinstance(left, str) and isinstance(right, str):
        return left == right or _without_midnight(left) == _without_midnight(right)
    return type(left) is type(right) and bool(left == right)


def _without_midnight(text: str) -> str:
    return text[:10] if _MIDNIGHT.fullmatch(text) else text


def _exact(row: Row) -> Row:
    """A row in which equal values look the same, except for numbers with a fraction."""
    return tuple(_exact_cell(cell) for cell in row)


def _exact_cell(cell: Any) -> Any:
    if isinstance(cell, float) and cell.is_integer() and abs(cell) < 2**53:
        return int(cell)
    return _without_midnight(cell) if isinstance(cell, str) else cell


def contains(rows: Sequence[Row], part: Sequence[Row], tolerance: Sequence[float] = ()) -> bool:
    """Whether every row of `part` is among `rows`, each at most as often as it is there.

    `tolerance` has a number for each column, or none at all.
    """
    if len(part) > len(rows):
        return False
    rest = Counter(map(_exact, rows))
    unmatched = []
    for row in map(_exact, part):
        if rest[row] > 0:
            rest[row] -= 1
        else:
            unmatched.append(row)
    return not unmatched or _match(unmatched, list(rest.elements()), tolerance)


def _match(part: list[Row], rows: list[Row], tolerance: Sequence[float]) -> bool:
    """Whether each row of `part` has a row of its own that is the same within the tolerance."""
    if len(part) * len(rows) > _MOST_PAIRS:
        order = _sortable
        pairs = zip(sorted(part, key=order), sorted(rows, key=order), strict=False)
        return len(part) == len(rows) and all(_same_row(*pair, tolerance) for pair in pairs)
    choices = [[at for at, row in enumerate(rows) if _same_row(own, row, tolerance)] for own in part]
    owners: dict[int, int] = {}
    places: dict[int, int] = {}
    return all(_place(index, choices, owners, places) for index in range(len(part)))


def _place(start: int, choices: list[list[int]], owners: dict[int, int], places: dict[int, int]) -> bool:
    """Give a row its partner, and move others to their other choices where needed (an augmenting path)."""
    came: dict[int, int] = {}
    waiting = [start]
    while waiting:
        row = waiting.pop()
        for at in choices[row]:
            if at in came:
                continue
            came[at] = row
            if at in owners:
                waiting.append(owners[at])
                continue
            free: int | None = at
            while free is not None:
                owner, taken = came[free], free
                free = places.get(owner)
                owners[taken], places[owner] = owner, taken
            return True
    return False


def _same_row(left: Row, right: Row, tolerance: Sequence[float]) -> bool:
    if not tolerance:
        return all(same_cell(a, b) for a, b in zip(left, right, strict=True))
    return all(same_cell(a, b, allowed) for a, b, allowed in zip(left, right, tolerance, strict=True))


def _sortable(row: Row) -> list[tuple[str, str, float]]:
    return [
        ("n", "", float(cell))
        if isinstance(cell, (int, float)) and abs(cell) < 1e300
        else (type(cell).__name__, str(cell), 0.0)
        for cell in row
    ]


def agrees(expected: Expected, rows: Sequence[Row], tolerance: Sequence[float] = ()) -> bool:
    """Whether rows, with their columns in the gold order, are the gold result."""
    if len(rows) != len(expected):
        return False
    at = 0
    for group in expected.groups:
        first, last = max(at, expected.start), min(at + len(group), expected.stop)
        at += len(group)
        if first < last and not contains(group, rows[first - expected.start : last - expected.start], tolerance):
            return False
    return True


def _mappings(
    pairs: Sequence[tuple[Expected, Sequence[Row]]], width: int, columns: int, tolerance: Sequence[float]
) -> Iterator[tuple[int, ...]]:
    """Which column may be which gold column, the order as it is first."""
    yield tuple(range(width))
    whole = [(expected.rows, rows) for expected, rows in pairs if expected.whole]
    choices = []
    for column in range(width):
        fits = [
            other
            for other in range(columns)
            if all(
                contains(
                    [row[column : column + 1] for row in gold],
                    [row[other : other + 1] for row in rows],
                    tolerance[column : column + 1],
                )
                for gold, rows in whole
            )
        ]
        if not fits:
            return
        choices.append(fits)
    yield from _injective(choices, ())


def _injective(choices: list[list[int]], chosen: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    if len(chosen) == len(choices):
        yield chosen
        return
    for column in choices[len(chosen)]:
        if column not in chosen:
            yield from _injective(choices, (*chosen, column))


def difference(
    pairs: Sequence[tuple[Expected, Sequence[Row]]],
    columns: int,
    *,
    tolerance: Sequence[float] = (),
    extra_columns: bool = False,
) -> tuple[int, str] | None:
    """The first gold result that differs from the other result, and how; None if all agree.

    `columns` is the number of columns of the other results; `tolerance` has a number for each gold column, or none.
    """
    width = pairs[0][0].width if pairs else columns
    if columns != width and not (extra_columns and columns > width):
        return 0, f"{columns} columns instead of {width}"
    for index, (expected, rows) in enumerate(pairs):
        if len(rows) != len(expected):
            return index, f"{len(rows)} rows instead of {len(expected)}"
    furthest = 0
    for mapping in islice(_mappings(pairs, width, columns, tolerance), _MOST_MAPPINGS):
        wrong = next(
            (
                index
                for index, (expected, rows) in enumerate(pairs)
                if not agrees(expected, [tuple(row[at] for at in mapping) for row in rows], tolerance)
            ),
            None,
        )
        if wrong is None:
            return None
        furthest = max(furthest, wrong)
    expected, rows = pairs[furthest]
    unordered = Expected(width, [expected.rows], expected.start, expected.stop)
    how = "the rows have another order" if expected.whole and agrees(unordered, rows, tolerance) else "the rows differ"
    return furthest, how
