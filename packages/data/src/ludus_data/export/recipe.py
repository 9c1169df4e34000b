"""What an export makes of a few lines of a run. Helper processes import this, and little else: it starts them fast."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from pickle import PickleBuffer
from typing import Any, NamedTuple

from ludus.runtime.encoding import encode
from ludus.runtime.garbage import fewer_garbage_collections
from ludus.store.lines import Block
from ludus.store.verifiers import Verifiers
from ludus_data.export.conversation import LeftOut, Losses
from ludus_data.export.format import Choices, ExportRow, Format, Packed, Unit
from ludus_data.export.grouping import Member, member_of
from ludus_data.export.pairs import PairRule
from ludus_data.export.records import Records
from ludus_data.export.registry import format_named
from ludus_data.export.selection import Selection
from ludus_data.filters import Filters

#: A member of a group in a block, the number of its line, and the bytes of its rows; None if it is left out.
MadeMember = tuple[Member, int, int | None]


class MadeBlock(NamedTuple):
    """What a block became. `read` are its bytes; `origins` are the lines of the second file, if there is one.

    The rows of `members` lack their beginning, which tells of the whole group.
    """

    read: int
    packed: Packed
    origins: Packed
    members: list[MadeMember]
    rows: int
    rollouts: int
    used: int
    left_out: Counter[str]
    losses: Counter[str]
    verifiers: Verifiers


@dataclass(frozen=True, slots=True)
class Recipe:
    """What an export does with each rollout of a file."""

    path: Path
    format: str
    choices: Choices
    filters: Filters

    def make(self, block: Block) -> MadeBlock:
        """The rows of a block."""
        losses = Losses()
        format_ = format_named(self.format)(self.choices, losses)
        origins, members, rows, used = list[bytes](), list[MadeMember](), 0, 0

        def new_rows() -> Iterator[ExportRow]:
            nonlocal rows, used
            for unit, new in made_rows(format_, selection):
                used += len(unit)
                rows += len(new)
                if format_.origins_beside:
                    origins.append(origin_lines(unit, len(new)))
                yield from new

        with Records(self.path, block) as records, fewer_garbage_collections():
            selection = Selection(records, self.filters, PairRule(), format_.takes, lambda _: None)
            if format_.takes == "member":
                packed: Packed = _member_lines(format_, selection, records, members)
            else:
                packed = format_.packed(new_rows())
        counts = rows, selection.rollouts, used, selection.left_out, losses.counts, selection.verifiers
        return MadeBlock(block.length, packed, b"".join(origins), members, *counts)


def _member_lines(format_: Format, selection: Selection, records: Records, members: list[MadeMember]) -> bytes:
    """The lines of members without their first character, joined. The members are appended to `members`."""
    written = []
    for sample, reason in selection.samples():
        if sample.reward is None:
            continue
        rows = rows_of(format_, (sample,), selection) if reason is None else None
        size = None
        if rows is not None:
            lines = [format_.line(row)[1:] for row in rows]  # without `{`
            size = sum(map(len, lines))
            written += lines
        members.append((member_of(sample), records.number, size))
    return b"".join(written)


def made_rows(format_: Format, selection: Selection) -> Iterator[tuple[Unit, list[ExportRow]]]:
    """The rows of each unit. The rollouts of a unit that the format cannot hold are counted as left out."""
    for unit in selection.units():
        rows = rows_of(format_, unit, selection)
        if rows is not None:
            yield unit, rows


def rows_of(format_: Format, unit: Unit, selection: Selection) -> list[ExportRow] | None:
    """The rows of a unit; None, and counted, if the format cannot hold it."""
    try:
        return list(format_.rows(unit))
    except LeftOut as reason:
        selection.left_out[str(reason)] += len(unit)
        return None


def origin_lines(unit: Unit, rows: int) -> bytes:
    """The lines of the second file for the rows of a unit."""
    return (encode(unit[0].origin()) + b"\n") * rows


def make_block(recipe: Recipe, lines: memoryview, number: int, duplicates: tuple[int, ...]) -> Any:
    """`Recipe.make`, as a helper calls it. Lines and rows are not copied on their way.

    Arrow asks whether rows are objects of pandas, and imports it for that, which would take half of a helper's start.
    """
    sys.modules.setdefault("pandas", None)  # type: ignore[arg-type]
    block = recipe.make(Block(0, len(lines), number, duplicates, lines))
    return MadeBlock(block.read, PickleBuffer(block.packed), PickleBuffer(block.origins), *block[3:])  # type: ignore[arg-type]
