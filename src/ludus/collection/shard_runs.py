"""The runs of single shards, as `ludus merge` reads them, and the checks that they are shards of one collection."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from ludus.data.shards import Shard
from ludus.errors import UserError, cannot_read
from ludus.record import Row, is_record
from ludus.store.files import read_json_object
from ludus.store.journal import open_locked
from ludus.store.lines import StoredLines
from ludus.store.parsing import parse_at
from ludus.store.run import differences
from ludus.store.stored_run import StoredRun

#: How many missing shards an error names.
_NAMED = 5

#: Options that change what the metrics mean, besides the identity.
_SAME_OPTIONS = ("repeats", "pass_reward", "reward_range")


#: Metrics that cannot be computed from the journals, with their types.
_OWN_METRICS: dict[str, type] = {
    "seconds": dict,
    "model": dict,
    "loop": dict,
    "warnings": list,
    "workers": dict,
    "checkpoints": dict,
}


class Line(NamedTuple):
    """A line of a journal: the line's number among all lines that `Ledger` was given, and its row."""

    journal: ShardJournal
    number: int
    line: bytes
    row: Row


class ShardJournal:
    """One journal of a shard. It may be read several times. `first` is the number of its first line.

    A torn last line, left by a kill, is left out and counted as `torn`.
    """

    def __init__(self, path: Path, *, failures: bool = False) -> None:
        self.path, self.failures = path, failures
        self.first = self.torn = 0
        self.size = path.stat().st_size if path.exists() else 0
        self._lines: StoredLines | None = None

    @property
    def share(self) -> float:
        """How much of the file has been read, from 0 to 1."""
        return self._lines.share if self._lines is not None else 0.0

    def lines(self) -> Iterator[Line]:
        """All lines, duplicates too: `Ledger` knows which of them count."""
        if not self.size:
            return
        with StoredLines(self.path, counting=False) as self._lines:
            for count, (number, line, _) in enumerate(self._lines):
                yield Line(self, self.first + count, line, self._row(number, line))
        self.torn = int(self._lines.torn > 0)

    def _row(self, number: int, line: bytes) -> Row:
        hint = "Remove the line, then merge again"
        row = parse_at(f"{self.path}:{number}", line, hint)
        if not is_record(row):
            raise UserError(f"{self.path}:{number}: not a rollout: rollout_id, task_id or outcome is missing", hint)
        return row


class ShardRun:
    """The run of one shard: what its run.json says, and its journals."""

    def __init__(self, path: str | Path) -> None:
        self.path, self.stored = Path(path), StoredRun(path)
        self.files = self.stored.files
        self.described = self._described()
        self.shard = self._shard()
        self.identity: Row = {key: value for key, value in self.described["identity"].items() if key != "shard"}
        self.options: Row = self.described["options"]
        self.rollouts = ShardJournal(self.files.rollouts)
        self.failures = ShardJournal(self.files.failures, failures=True)

    @property
    def expected(self) -> int:
        """How many rollouts the shard should have."""
        return int(self.options["tasks"]) * int(self.options["repeats"])

    def lock(self, stack: ExitStack) -> None:
        """Refuse a run that is still being written, and let none write it until `stack` is closed."""
        try:
            stack.callback(os.close, open_locked(self.files.rollouts, os.O_RDONLY, to_write=False))
        except OSError as error:
            raise cannot_read(self.files.rollouts, error) from error

    def lines(self) -> Iterator[Line]:
        """The lines of both journals, each in its order, read at the same pace: the repeats of a task are close."""
        waiting = {journal: journal.lines() for journal in (self.rollouts, self.failures)}
        while waiting:
            journal = min(waiting, key=lambda journal: journal.share)
            line = next(waiting[journal], None)
            if line is not None:
                yield line
            else:
                del waiting[journal]

    def metrics(self) -> dict[str, Any]:
        """The shard's metrics that its journals do not hold; empty if it was killed before it wrote them."""
        named = read_json_object(self.files.metrics).items()
        return {name: value for name, value in named if isinstance(value, _OWN_METRICS.get(name, ()))}

    def _described(self) -> Row:
        path, described = self.files.run, self.files.described()
        if not path.exists():
            raise UserError(f"cannot read {path}: No such file or directory", "Name the folders of the shards")
        if not isinstance(described.get("identity"), dict) or not isinstance(described.get("options"), dict):
            raise UserError(f"{path} does not describe a run", "Name the folders of the shards")
        return described

    def _shard(self) -> Shard:
        named = self.described["identity"].get("shard")
        if named is None:
            raise UserError(
                f"{self.path} is a whole run, not a shard", "Collect shards with: ludus collect --shard I/N"
            )
        if not all(isinstance(self.described["options"].get(name), int) for name in ("tasks", "repeats")):
            raise UserError(f"{self.files.run} does not describe a shard", "Collect it again with --shard I/N")
        return Shard.parse(named)


def check_shards(runs: Sequence[ShardRun], *, partial: bool) -> list[Shard]:
    """Refuse runs that are not the shards of one collection, each once. Returns the missing shards."""
    if not runs:
        raise UserError("no shards are given", "Name the folders of the shards")
    first, by_shard = runs[0], dict[Shard, ShardRun]()
    for run in runs:
        _check_same_run(first, run)
        other = by_shard.setdefault(run.shard, run)
        if other is not run:
            raise UserError(f"shard {run.shard} is given twice: {other.path} and {run.path}", "Leave one of them out")
    every = (Shard(number, first.shard.total) for number in range(1, first.shard.total + 1))
    missing = [shard for shard in every if shard not in by_shard]
    if missing and not partial:
        names = ", ".join(str(shard) for shard in missing[:_NAMED])
        more = f" and {len(missing) - _NAMED:,} more" if len(missing) > _NAMED else ""
        verb, noun = ("is", "shard") if len(missing) == 1 else ("are", "shards")
        raise UserError(f"{noun} {names}{more} {verb} missing", "Name all shards, or add --partial")
    return missing


def _check_same_run(first: ShardRun, run: ShardRun) -> None:
    changed = differences(first.identity, run.identity)
    for name in _SAME_OPTIONS:
        changed += differences(first.options.get(name), run.options.get(name), name)
    if first.shard.total != run.shard.total:
        changed.insert(0, ("the number of shards", first.shard.total, run.shard.total))
    if changed:
        listed = "; ".join(f"{key} is {theirs!r:.60} and {ours!r:.60}" for key, theirs, ours in changed[:3])
        raise UserError(f"{first.path} and {run.path} are of different runs: {listed}", "Merge shards of one run")
