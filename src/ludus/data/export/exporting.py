"""The work of `ludus data export`: read a run, pick rollouts, make rows, write them, and account for every rollout.

Every rollout of the file is either used or left out for one reason: `rollouts = used + sum(left_out)`.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ludus.collection.metrics import PASS_REWARD
from ludus.data.export.card import card
from ludus.data.export.conversation import LeftOut, Losses
from ludus.data.export.format import Choices, Format, Unit
from ludus.data.export.grouping import GroupIndex, IndexedRollout
from ludus.data.export.pairs import BETWEEN, PairRule
from ludus.data.export.registry import format_named
from ludus.data.export.sheet import COLUMNS
from ludus.data.export.tables import Table
from ludus.data.export.writing import (
    DATA_FILE,
    STDOUT,
    CsvLines,
    JsonLines,
    Outputs,
    ParquetRows,
    Writer,
    outputs,
    require_pyarrow,
)
from ludus.data.filters import Filters, within
from ludus.data.recorded import Sample
from ludus.errors import UserError, did_you_mean
from ludus.runtime.encoding import encode
from ludus.runtime.running import fewer_garbage_collections
from ludus.store.loading import rollouts_file
from ludus.store.records import Records
from ludus.store.run import Files, recorded_scales
from ludus.store.scratch import Scratch, explains_full_disk, full_disk
from ludus.train.advantages import ESTIMATORS

#: The number of rollouts between two calls of `tick`.
_TICK_EVERY = 256
#: The buffer of the temporary file that holds the rows of groups.
_BUFFER = 1 << 20

Tick = Callable[[float], None]


@dataclass
class Exported:
    """What was written. `rollouts` were read; each was used or left out for one reason.

    `not_carried` counts values that had no place in the format, `never_carried` names what no row of it holds.
    """

    format: str
    outputs: list[str]
    rollouts: int = 0
    used: int = 0
    rows: int = 0
    left_out: dict[str, int] = field(default_factory=dict)
    not_carried: dict[str, int] = field(default_factory=dict)
    never_carried: list[str] = field(default_factory=list)

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
    made = kind(choices or Choices(), losses)
    path = rollouts_file(Path(run))
    if str(output) != STDOUT and Path(output).resolve() in (path.resolve(), *path.resolve().parents):
        raise UserError(f"{output} holds the rollouts that are exported", "Choose another --output")
    with Records(path) as records, outputs(output, overwrite=overwrite) as files, fewer_garbage_collections():
        work = _Export(records, made, filters or Filters(), pairs or PairRule(), advantage, tick)
        work.write(files)
    if made.origins_beside and files.to_stdout:
        losses.lose("receipts and policy versions: stdout has no place for the second file")
    return Exported(
        format=to,
        outputs=files.names,
        rollouts=work.rollouts,
        used=work.used,
        rows=work.rows,
        left_out=dict(work.left_out.most_common()),
        not_carried=dict(losses.counts.most_common()),
        never_carried=list(made.never),
    )


class _Export:
    def __init__(
        self, records: Records, made: Format, filters: Filters, pairs: PairRule, advantage: str, tick: Tick
    ) -> None:
        self._records, self._format, self._filters, self._pairs = records, made, filters, pairs
        self._estimate, self._tick = ESTIMATORS[advantage], tick
        self.rollouts = self.used = self.rows = 0
        self.left_out: Counter[str] = Counter()
        self._scales = {scale.name: scale.pass_reward for scale in recorded_scales(self._run_file())}
        self._indexed = made.takes != "rollout" or filters.needs_groups

    def write(self, files: Outputs) -> None:
        """Read everything and write everything."""
        writer, origins = self._open(files)
        try:
            if isinstance(writer, JsonLines) and self._format.takes == "member":
                self._write_members(writer)
            else:
                self._write_units(writer, origins)
            writer.finish()
        except BaseException:
            writer.abandon()
            raise

    def _write_units(self, writer: Writer, origins: Writer | None) -> None:
        make, write = self._format.rows, writer.write
        for unit, weight in self._grouped_units() if self._indexed else self._single_units():
            try:
                rows = list(make(unit))
            except LeftOut as reason:
                self.left_out[str(reason)] += len(unit.samples)
                continue
            self.used += len(unit.samples)
            for row in rows:
                write(row, weight)
                if origins is not None:
                    origins.write(unit.samples[0].origin(), 0)
            self.rows += len(rows)

    def _open(self, files: Outputs) -> tuple[Writer, Writer | None]:
        made = self._format
        if isinstance(made, Table):
            if made.file == "parquet":
                return ParquetRows(files.file(), made.schema()), None
            folder = files.folder()
            files.file_in(folder / "README.md").write(card(self._records.path.parent.name).encode())
            data = files.file_in(folder / "data" / DATA_FILE)
            return ParquetRows(data, made.schema()), None
        if made.file == "csv":
            return CsvLines(files.file(), COLUMNS), None
        beside = made.origins_beside and not files.to_stdout
        main = JsonLines(files.file())
        second = files.target.with_name(files.target.name + ".origins.jsonl")
        return main, JsonLines(files.file(second)) if beside else None

    def _samples(self) -> Iterator[tuple[Any, Sample, str | None]]:
        """All rollouts with their places, and why a filter refuses them. The first pass over the file."""
        reason_against, share = self._filters.reason_against, 0.5 if self._indexed else 1.0
        total = max(self._records.size, 1)
        for place, row in self._records:
            self.rollouts += 1
            if not self.rollouts % _TICK_EVERY:
                self._tick(min(share * place.offset / total, 1.0))
            sample = Sample(row)
            reason = reason_against(sample)
            if reason is not None:
                self.left_out[reason] += 1
            yield place, sample, reason
        if self._records.torn:
            self.rollouts += 1
            self.left_out["incomplete last line"] += 1

    def _single_units(self) -> Iterator[tuple[Unit, int]]:
        for place, sample, reason in self._samples():
            if reason is None:
                yield Unit((sample,)), place.length

    def _grouped_units(self) -> Iterator[tuple[Unit, int]]:
        """Units in the order in which their tasks begin in the file. The second pass reads by place."""
        measured = self._pairs.length_ratio is not None
        with GroupIndex(self._records.size) as index:
            for place, sample, reason in self._samples():
                if sample.reward is None:
                    continue
                length = sample.length if measured else 0
                index.add(sample, place, length=length, kept=reason is None, passed=self._passes(sample))
            for members in self._wanted_groups(index):
                yield from self._units_of(members)

    def _write_members(self, writer: JsonLines) -> None:
        """Write the members of groups. Rows are made in one pass over the file, kept in a temporary file, and get their
        advantages when all groups are known. The baseline is the whole group's, whatever the filters refuse."""
        end = 0
        with Scratch("ludus-export-") as scratch, GroupIndex(self._records.size) as index:
            with explains_full_disk():
                made = scratch.file(_BUFFER)
            for place, sample, reason in self._samples():
                if sample.reward is None:
                    continue
                lines = self._encoded(sample) if reason is None else None
                size = len(lines or b"")
                spot = end, size, place.number, True
                end += size
                index.add(sample, spot, length=0, kept=lines is not None, passed=self._passes(sample))
                if lines:
                    try:
                        made.write(lines)
                    except OSError as error:
                        raise full_disk(error) from error
            with explains_full_disk():
                made.flush()
            handle = made.fileno()
            for members in self._wanted_groups(index):
                counts = [not member.masked for member in members]
                start = b'{"group_size":%d,"advantage":' % sum(counts)
                advantages = self._advantages(members, counts)
                for member, advantage in zip(members, advantages, strict=True):
                    if member.kept:
                        head = start + encode(advantage) + b","
                        lines = os.pread(handle, member.size, member.offset)
                        for line in lines.split(b"\n") if b"\n" in lines else (lines,):
                            writer.write_encoded(b"".join((head, memoryview(line)[1:], b"\n")))
                            self.rows += 1
                        self.used += 1

    def _advantages(self, members: list[IndexedRollout], counts: list[bool]) -> list[float]:
        found = self._estimate([member.reward for member in members], counts)
        if not all(map(math.isfinite, found)):
            rewards = [member.reward for member in members]
            cause = f"the rewards {min(rewards):g} to {max(rewards):g} of a task are too far apart for an advantage"
            line = next(member.number for member, each in zip(members, found, strict=True) if not math.isfinite(each))
            raise UserError(f"{self._records.path}:{line}: {cause}", "Score the run again with smaller rewards")
        return found

    def _encoded(self, sample: Sample) -> bytes | None:
        """The rows of a rollout, a line each; None, and counted, if the format cannot hold it."""
        try:
            return b"\n".join([encode(row) for row in self._format.rows(Unit((sample,)))])
        except LeftOut as reason:
            self.left_out[str(reason)] += 1
            return None

    def _passes(self, sample: Sample) -> bool:
        return sample.scored >= self._scales.get(sample.environment, PASS_REWARD)

    def _wanted_groups(self, index: GroupIndex) -> Iterator[list[IndexedRollout]]:
        """The groups that have a kept member and the wanted pass rate. Ends with a count of duplicated lines."""
        done = 0
        for members in index.groups():
            done += len(members)
            self._tick(0.5 + 0.5 * min(done / self.rollouts, 1.0))
            kept = sum(member.kept for member in members)
            if kept and self._filters.needs_groups and not self._has_wanted_pass_rate(members):
                self.left_out["pass rate"] += kept
            elif kept:
                yield members
        if index.duplicates:
            self.left_out["duplicate"] += index.duplicates

    def _units_of(self, members: list[IndexedRollout]) -> Iterator[tuple[Unit, int]]:
        kept = [member for member in members if member.kept]
        if self._format.takes == "pair":
            yield from self._pair_of(kept)
        else:
            for member in kept:
                yield Unit((self._read(member),)), member.size

    def _pair_of(self, kept: list[IndexedRollout]) -> Iterator[tuple[Unit, int]]:
        pair = self._pairs.pair(kept)
        if isinstance(pair, str):
            self.left_out[pair] += len(kept)
            return
        if len(kept) > 2:
            self.left_out[BETWEEN] += len(kept) - 2
        yield Unit((self._read(pair.chosen), self._read(pair.rejected))), pair.chosen.size + pair.rejected.size

    def _has_wanted_pass_rate(self, members: list[IndexedRollout]) -> bool:
        counted = [member.passed for member in members if not member.masked]
        return bool(counted) and within(sum(counted) / len(counted), self._filters.pass_rate)

    def _read(self, member: IndexedRollout) -> Sample:
        return Sample(self._records.at(member.place))

    def _run_file(self) -> Path:
        path = self._records.path
        return Files(path.parent if path.name == Files("").rollouts.name else path).run
