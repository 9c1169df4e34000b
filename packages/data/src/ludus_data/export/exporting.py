"""The work of `ludus data export`: read a run, pick rollouts, make rows, write them, and account for every rollout.

Every rollout of the file is either used or left out for one reason: `rollouts = used + sum(left_out)`.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ludus.data.advantages import ESTIMATORS
from ludus.errors import UserError, did_you_mean
from ludus.runtime.encoding import encode
from ludus.runtime.garbage import fewer_garbage_collections
from ludus.store.files import rollouts_of
from ludus.store.scratch import Scratch, explains_full_disk
from ludus_data.export.blocks import make_blocks
from ludus_data.export.card import card
from ludus_data.export.conversation import Losses
from ludus_data.export.format import OWN_REWARD, Choices, ExportRow, Format, LineFile, Writer
from ludus_data.export.grouping import GroupIndex, IndexedRollout
from ludus_data.export.pairs import PairRule
from ludus_data.export.recipe import MadeBlock, Recipe, made_rows, origin_lines
from ludus_data.export.records import Records
from ludus_data.export.registry import format_named
from ludus_data.export.selection import Selection, Tick
from ludus_data.export.tables import Table
from ludus_data.export.writing import (
    DATA_FILE,
    STDOUT,
    Outputs,
    ParquetFile,
    outputs,
    require_pyarrow,
)
from ludus_data.filters import Filters

#: The buffer of the temporary file that holds the rows of groups.
_BUFFER = 1 << 20
_OWN_REWARD = b'"%s":' % OWN_REWARD.encode()


@dataclass
class Exported:
    """What was written. `rollouts` were read; each was used or left out for one reason.

    `not_carried` counts values that had no place in the format, `never_carried` names what no row of it holds.
    `several_verifiers` has the environments whose rollouts were judged by more than one verifier.
    """

    format: str
    outputs: list[str]
    rollouts: int = 0
    used: int = 0
    rows: int = 0
    left_out: dict[str, int] = field(default_factory=dict)
    not_carried: dict[str, int] = field(default_factory=dict)
    never_carried: list[str] = field(default_factory=list)
    several_verifiers: dict[str, dict[str, int]] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """All fields."""
        return asdict(self)


def export(
    run: str | Path,
    to: str,
    output: str | Path,
    *,
    filters: Filters | None = None,
    choices: Choices | None = None,
    pairs: PairRule | None = None,
    advantage: str = "z_score",
    overwrite: bool = False,
    tick: Tick = lambda _: None,
) -> Exported:
    """Write the rollouts of a run as a training set in the format `to`.

        export("runs/first", "sft", "sft.jsonl", filters=Filters(reward=(1.0, None)))

    `output` is a file, a folder for `hf`, or `-` for stdout. `tick` is called with the share of the work that is done.
    """
    kind = format_named(to)
    if advantage not in ESTIMATORS:
        raise UserError(f"unknown advantage {advantage!r:.40}", did_you_mean(advantage, ESTIMATORS))
    if kind.file in ("parquet", "folder"):
        require_pyarrow()
    if str(output) == STDOUT and kind.file != "jsonl":
        raise UserError(f"{to} is not made of JSON lines, which --output - prints", "Name a file with --output")
    losses = Losses()
    format_ = kind(choices or Choices(), losses)
    path = rollouts_of(run).rollouts
    if str(output) != STDOUT and Path(output).resolve() in (path.resolve(), *path.resolve().parents):
        raise UserError(f"{output} holds the rollouts that are exported", "Choose another --output")
    with Records(path) as records, outputs(output, overwrite=overwrite) as files, fewer_garbage_collections():
        work = _Export(records, format_, filters or Filters(), pairs or PairRule(), advantage, tick)
        work.write(files)
    if format_.origins_beside and files.to_stdout:
        losses.lose("receipts and policy versions: stdout has no place for the second file")
    return Exported(
        format=to,
        outputs=files.names,
        rollouts=work.selection.rollouts,
        used=work.used,
        rows=work.rows,
        left_out=dict(work.selection.left_out.most_common()),
        not_carried=dict(losses.counts.most_common()),
        never_carried=list(format_.never),
        several_verifiers=work.selection.verifiers.several(),
    )


class _Export:
    def __init__(
        self, records: Records, format_: Format, filters: Filters, pairs: PairRule, advantage: str, tick: Tick
    ) -> None:
        self._records, self._format, self._filters, self._tick = records, format_, filters, tick
        self._estimate = ESTIMATORS[advantage]
        self.selection = Selection(records, filters, pairs, format_.takes, tick)
        self.used = self.rows = 0

    def write(self, files: Outputs) -> None:
        """Read everything and write everything."""
        writer, origins = self._open(files)
        try:
            if self._format.takes == "member":
                self._write_members(writer)
            elif self.selection.grouped:
                self._write_units(writer, origins)
            else:
                self._write_blocks(writer, origins)
            writer.finish()
        except BaseException:
            writer.abandon()
            raise

    def _write_blocks(self, writer: Writer, origins: Writer | None) -> None:
        """Write rollout by rollout."""

        def take(block: MadeBlock) -> None:
            if block.rows:
                writer.write(block.packed, block.rows)
            if origins is not None:
                origins.write(block.origins, block.rows)
            self.rows += block.rows
            self.used += block.used

        self._make_blocks(take, 1.0)

    def _make_blocks(self, take: Callable[[MadeBlock], None], share: float) -> None:
        """Give every block of the file to `take`, and count what was left out. Other processes may make them."""
        done, size, losses = 0, max(self._records.size, 1), self._format.losses

        def take_and_count(block: MadeBlock) -> None:
            nonlocal done
            take(block)
            self.selection.add(block.rollouts, block.left_out, block.verifiers)
            for what, times in block.losses.items():
                losses.lose(what, times)
            done += block.read
            self._tick(share * min(done / size, 1.0))

        recipe = Recipe(self._records.path, self._format.name, self._format.choices, self._filters)
        make_blocks(recipe, self._records, take_and_count)
        if self._records.lines.torn:
            self.selection.add(1, Counter({"incomplete last line": 1}))
        self._tick(share)

    def _write_units(self, writer: Writer, origins: Writer | None) -> None:
        format_, held = self._format, list[ExportRow]()
        for unit, rows in made_rows(format_, self.selection):
            held += rows
            if origins is not None:
                origins.write(origin_lines(unit, len(rows)), len(rows))
            self.used += len(unit)
            self.rows += len(rows)
            if len(held) >= format_.at_once:
                writer.write(format_.packed(held), len(held))
                held.clear()
        if held:
            writer.write(format_.packed(held), len(held))

    def _open(self, files: Outputs) -> tuple[Writer, Writer | None]:
        format_ = self._format
        if isinstance(format_, Table):
            if format_.file == "parquet":
                return ParquetFile(files.file(), format_.schema()), None
            folder = files.folder()
            files.file_in(folder / "README.md").write(card(self._records.path.parent.name).encode())
            data = files.file_in(folder / "data" / DATA_FILE)
            return ParquetFile(data, format_.schema()), None
        beside = format_.origins_beside and not files.to_stdout
        main = format_.writer(files.file())
        second = files.target.with_name(files.target.name + ".origins.jsonl")
        return main, LineFile(files.file(second)) if beside else None

    def _write_members(self, writer: Writer) -> None:
        """Write the members of groups. Rows are made in one pass over the file, kept in a temporary file, and get their
        advantages when all groups are known. The baseline is the whole group's, whatever the filters refuse."""
        end = 0
        with Scratch("ludus-export-") as scratch, GroupIndex(self._records.size) as index:
            with explains_full_disk():
                rows_file = scratch.file(_BUFFER)

            def take(block: MadeBlock) -> None:
                nonlocal end
                with explains_full_disk():
                    rows_file.write(block.packed)
                for member, number, size in block.members:
                    environment, _, _, _, reward, _ = member
                    place, passed = (end, size or 0, number, True), self.selection.passes(environment, reward)
                    index.add(member, place, length=0, kept=size is not None, passed=passed)
                    end += size or 0

            self._make_blocks(take, 0.5)
            with explains_full_disk():
                rows_file.flush()
            handle = rows_file.fileno()
            for members in self.selection.wanted_groups(index):
                counts = [not member.masked for member in members]
                start = b'{"group_size":%d,"advantage":' % sum(counts)
                advantages = self._advantages(members, counts)
                for member, advantage in zip(members, advantages, strict=True):
                    if member.kept:
                        for line in os.pread(handle, member.size, member.offset).splitlines(keepends=True):
                            own, fields = _own_reward(line)
                            value = advantage
                            if own is not None:  # it is compared with the group, and not part of the baseline
                                value = self._advantages([*members, member._replace(reward=own)], [*counts, False])[-1]
                            writer.write(start + encode(value) + b"," + fields, 1)
                            self.rows += 1
                        self.used += 1

    def _advantages(self, members: list[IndexedRollout], counts: list[bool]) -> list[float]:
        rewards = [member.reward for member in members]
        advantages = self._estimate(rewards, counts)
        if not all(map(math.isfinite, advantages)):
            cause = f"the rewards {min(rewards):g} to {max(rewards):g} of a task are too far apart for an advantage"
            finite = map(math.isfinite, advantages)
            line = next(member.number for member, is_finite in zip(members, finite, strict=True) if not is_finite)
            raise UserError(f"{self._records.path}:{line}: {cause}", "Score the run again with smaller rewards")
        return advantages


def _own_reward(line: bytes) -> tuple[float | None, bytes]:
    """The reward of its own that a member's row begins with, if it has one, and the fields of the row without it."""
    if not line.startswith(_OWN_REWARD):
        return None, line
    reward, _, fields = line.removeprefix(_OWN_REWARD).partition(b",")
    return float(reward), fields
