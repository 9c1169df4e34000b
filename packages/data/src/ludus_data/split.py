"""`ludus data split`: rows to train, validation and test by a hash of their content.

The part of a row depends only on its content and the shares: when a dataset grows, no row moves from one part to
another. Rows with the same prompt land in the same part.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from hashlib import blake2b
from itertools import accumulate
from pathlib import Path
from typing import Any

from ludus.data.row_checks import unambiguous_row
from ludus.errors import UserError
from ludus.store.drafts import check_new, draft
from ludus_data.inputs import Inputs, Tick, ends_with_newline
from ludus_data.row_text import PROMPT, RowPart

_ELSEWHERE = "Choose another --output"


@dataclass
class SplitReport:
    """How many rows each part got."""

    output: str
    rows: int
    parts: dict[str, int]

    def as_json(self) -> dict[str, Any]:
        """All fields."""
        return asdict(self)


class Splitter:
    """Says which part a row belongs to: `Splitter({"train": 0.9, "test": 0.1}).part_of(where, row)`.

    The shares are relative to their sum. `salt` makes another split of the same rows.
    """

    def __init__(self, shares: Mapping[str, float], by: str = PROMPT, salt: str = "") -> None:
        if not shares or min(shares.values()) <= 0:
            raise UserError("a split needs parts with shares above 0", "Example: --parts train=0.9,test=0.1")
        for name in shares:
            if re.fullmatch(r"\w[\w.-]{0,99}", name) is None:
                raise UserError(f"--parts: {name!r:.60} is not a file name", "Example: --parts train=0.9,test=0.1")
        total = sum(shares.values())
        self._limits = [limit / total for limit in accumulate(shares.values())]
        self._names = list(shares)
        self._part = RowPart(by)
        self._key = blake2b(salt.encode(), digest_size=32).digest()

    def part_of(self, where: str, row: dict[str, Any]) -> str:
        """The name of the part of a row."""
        hashed = blake2b(self._part.digest(where, row), key=self._key, digest_size=8).digest()
        place = int.from_bytes(hashed, "big") / 2**64
        return next(
            (name for name, limit in zip(self._names, self._limits, strict=True) if place < limit), self._names[-1]
        )


def split(
    files: Sequence[str | Path],
    output: str | Path,
    shares: Mapping[str, float],
    *,
    by: str = PROMPT,
    salt: str = "",
    overwrite: bool = False,
    tick: Tick = lambda _: None,
) -> SplitReport:
    """Write each row to the file of its part, `OUTPUT/PART.jsonl`, in the order of the input."""
    splitter, folder = Splitter(shares, by, salt), Path(output)
    targets = {name: folder / f"{name}.jsonl" for name in shares}
    for target in targets.values():
        check_new(target, overwrite=overwrite)
    counts = dict.fromkeys(shares, 0)
    inputs = Inputs(files, tick)
    with ExitStack() as stack:
        opened = {name: stack.enter_context(draft(target, _ELSEWHERE)) for name, target in targets.items()}
        for where, line in inputs.lines():
            name = splitter.part_of(where, unambiguous_row(where, line))
            opened[name].write(ends_with_newline(line))
            counts[name] += 1
    return SplitReport(str(folder), sum(counts.values()), counts)
