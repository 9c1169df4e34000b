"""`ludus data overlap A B`: rows of a held-out set B whose text stands in a training set A.

A row of B overlaps if a large share of its runs of 13 words stands in A, also inside longer prompts. A text with fewer
words is one run, and overlaps if A has a row with the same words. Runs in many rows of B belong to a template, such as
instructions, and do not count. B is read twice, A once. The memory is about 150 bytes for each different run of B; A
may have any size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ludus.errors import UserError
from ludus.record import Row
from ludus_data.inputs import Inputs, Tick
from ludus_data.row_text import PROMPT, RowPart, ngrams

#: How many overlapping rows are kept as examples.
SHOWN = 20

#: A run is part of a template if more than this many rows of B have it, and more than this share of them.
_TEMPLATE_ROWS, _TEMPLATE_SHARE = 5, 0.02


@dataclass(frozen=True)
class Overlap:
    """A row of B at `where`. A holds `share` of its runs; `text` is one of them, and stands in A's row at `first`."""

    where: str
    first: str
    share: float
    text: str


@dataclass
class OverlapReport:
    """How many rows of B overlap with A. `only_template` counts rows of B without words of their own."""

    train_rows: int = 0
    test_rows: int = 0
    overlapping: int = 0
    only_template: int = 0
    examples: list[Overlap] = field(default_factory=list)

    @property
    def share(self) -> float:
        """The share of B's rows that overlap."""
        return self.overlapping / self.test_rows if self.test_rows else 0.0

    def as_json(self) -> dict[str, Any]:
        """All fields."""
        return {**asdict(self), "share": self.share}


def overlap(
    train: Sequence[str | Path],
    test: Sequence[str | Path],
    *,
    size: int = 13,
    threshold: float = 0.5,
    by: str = PROMPT,
    tick: Tick = lambda _: None,
) -> OverlapReport:
    """Find rows of `test` if `train` holds at least the share `threshold` of their runs of `size` words."""
    if size < 1:
        raise UserError(f"--words {size} is not a number of words from 1 on")
    if not 0 < threshold <= 1:
        raise UserError(f"--threshold {threshold} is not a share above 0 and up to 1", "Example: --threshold 0.5")
    search, held_out = _Search(RowPart(by), size), Inputs(test, tick, passes=2)
    for where, row in held_out.rows():
        search.learn(where, row)
    for where, row in Inputs(train, tick).rows():
        search.look(where, row)
    for where, row in held_out.rows():
        search.compare(where, row, threshold)
    return search.report


class _Search:
    def __init__(self, part: RowPart, size: int) -> None:
        self.report = OverlapReport()
        self._part, self._size = part, size
        self._counts: dict[int, int] = {}  # hash of a run in B -> rows of B with it
        self._shared: dict[int, str] = {}  # hash of a run in A and B -> its first row in A

    def learn(self, where: str, row: Row) -> None:
        """Count the runs of a row of B."""
        self.report.test_rows += 1
        for run in self._runs(where, row):
            key = hash(run)
            self._counts[key] = self._counts.get(key, 0) + 1

    def look(self, where: str, row: Row) -> None:
        """Note the runs of B that stand in a row of A."""
        self.report.train_rows += 1
        for key in map(hash, self._runs(where, row)):
            if key in self._counts:
                self._shared.setdefault(key, where)

    def compare(self, where: str, row: Row, threshold: float) -> None:
        """Count a row of B if it overlaps."""
        report = self.report
        most = max(_TEMPLATE_ROWS, int(_TEMPLATE_SHARE * report.test_rows))
        own = [(run, key) for run in self._runs(where, row) if self._counts.get(key := hash(run), 0) <= most]
        if not own:
            report.only_template += 1
            return
        shared = [(run, self._shared[key]) for run, key in own if key in self._shared]
        share = len(shared) / len(own)
        if share < threshold:
            return
        report.overlapping += 1
        if len(report.examples) < SHOWN:
            run, first = shared[0]
            report.examples.append(Overlap(where, first, round(share, 3), " ".join(run)[:200]))

    def _runs(self, where: str, row: Row) -> dict[tuple[str, ...], None]:
        """The different runs of a row in their order."""
        return dict.fromkeys(ngrams(self._part.words(where, row), self._size))
