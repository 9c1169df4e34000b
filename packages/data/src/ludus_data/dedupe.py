"""`ludus data dedupe`: leave out rows that came before, exactly or nearly. The first of equal rows stays.

The memory is about 300 bytes for each row that stays, and about 2 KB more with near-duplicates.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ludus.data.row_checks import writable_row
from ludus.errors import UserError
from ludus.store.drafts import check_new, draft
from ludus_data.inputs import Inputs, Tick, ends_with_newline
from ludus_data.near import NearDuplicates
from ludus_data.row_text import PROMPT, RowPart, content_digest

#: How many duplicates are kept as examples.
SHOWN = 20
_ELSEWHERE = "Choose another --output"


@dataclass(frozen=True)
class Duplicate:
    """A row whose duplicate stands earlier, at `first`. The similarity of an exact duplicate is 1."""

    where: str
    first: str
    similarity: float


@dataclass
class DedupeReport:
    """What `dedupe` counted. `differ` counts exact duplicates whose other fields differ from the row that stays."""

    rows: int = 0
    kept: int = 0
    exact: int = 0
    differ: int = 0
    near: int = 0
    examples: list[Duplicate] = field(default_factory=list)
    output: str | None = None

    def as_json(self) -> dict[str, Any]:
        """All fields."""
        return asdict(self)


def dedupe(
    files: Sequence[str | Path],
    output: str | Path | None = None,
    *,
    by: str = PROMPT,
    near: float | None = None,
    overwrite: bool = False,
    tick: Tick = lambda _: None,
) -> DedupeReport:
    """Find rows whose part `by` came before, and write the others to `output` if it is given.

    `near` is the similarity from which rows are near-duplicates, from 0.5 to 1.
    """
    if near is not None and not 0.5 <= near <= 1:
        raise UserError(f"--near {near} is not a similarity from 0.5 to 1", "Example: --near 0.8")
    inputs, search = Inputs(files, tick), _Search(by, near)
    report = DedupeReport(output=str(output) if output is not None else None)
    with ExitStack() as stack:
        file = None
        if output is not None:
            check_new(Path(output), overwrite=overwrite)
            file = stack.enter_context(draft(Path(output), _ELSEWHERE))
        for where, line in inputs.lines():
            if not search.came_before(where, writable_row(where, line), report) and file is not None:
                file.write(ends_with_newline(line))
    return report


class _Search:
    def __init__(self, by: str, near: float | None) -> None:
        self._part = RowPart(by)
        self._first: dict[bytes, tuple[str, bytes]] = {}  # digest of the part -> place and digest of the row
        self._near = NearDuplicates(near) if near is not None else None
        self._near_where: list[str] = []

    def came_before(self, where: str, row: dict[str, Any], report: DedupeReport) -> bool:
        """Whether an equal or similar row came before. Counts the row."""
        report.rows += 1
        key, whole = self._part.digest(where, row), content_digest(where, row)[:8]
        first = self._first.get(key)
        if first is not None:
            report.exact += 1
            report.differ += first[1] != whole
            _show(report, where, first[0], 1.0)
            return True
        if self._near is not None:
            earlier = self._near.find_or_add(self._part.tokens(where, row))
            if earlier is not None:
                report.near += 1
                _show(report, where, self._near_where[earlier[0]], earlier[1])
                return True
            self._near_where.append(where)
        self._first[key] = where, whole
        report.kept += 1
        return False


def _show(report: DedupeReport, where: str, first: str, similarity: float) -> None:
    if len(report.examples) < SHOWN:
        report.examples.append(Duplicate(where, first, round(similarity, 3)))
