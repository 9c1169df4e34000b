"""`ludus merge`: join the runs of all shards into one run, as if the collection had never been split.

The journals are read twice: first to find duplicated lines and incomplete shards, then to copy lines and to compute the
metrics. The shards are read in turns, a task of each, which is the order of the unsharded run if its tasks ended in
order. The new run is written to a draft folder beside the output and renamed when all its files are on the disk.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from ludus.collection.ledger import Ledger, LineState
from ludus.collection.metrics import Metrics
from ludus.collection.model_stats import added_stats
from ludus.collection.progress import Progress
from ludus.collection.shard_runs import Line, ShardRun, check_shards
from ludus.errors import Failure, UserError
from ludus.runtime.running import allow_open_files
from ludus.store.drafts import draft_path, write_whole
from ludus.store.files import Files
from ludus.store.loading import rollout_of
from ludus.store.run import indented_json, write_run

#: The number of lines between two calls of `tick`.
_TICK_EVERY = 64

Tick = Callable[[float], None]


@dataclass
class Merged:
    """What was joined. `missing_rollouts` were not collected; `duplicates` and `torn` lines were left out."""

    output: str
    shards: int
    rollouts: int
    failures: int
    missing_rollouts: int
    duplicates: int
    torn: int
    counts: dict[str, int]
    mean_reward: float | None
    missing_shards: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """All fields."""
        return asdict(self)


def merge(
    runs: Sequence[str | Path], output: str | Path, *, partial: bool = False, tick: Tick = lambda _: None
) -> Merged:
    """Join the runs of all shards of a collection into the new folder `output`.

        ludus.merge(["runs/shard-1", "runs/shard-2"], "runs/all")

    With `partial`, shards and rollouts may be missing. `tick` is called with the share of the work that is done.
    """
    target = Path(output)
    if os.path.lexists(target):
        raise UserError(f"{target} exists already", "Choose another --output")
    if target.suffix == ".jsonl":
        raise UserError(f"{target} names a file, and a merged run is a folder", "Choose another --output")
    shards = sorted((ShardRun(run) for run in runs), key=lambda run: run.shard)
    missing = check_shards(shards, partial=partial)
    with contextlib.suppress(UserError):  # if a file cannot be opened for that reason, the error names it
        allow_open_files(4 * len(shards))
    with contextlib.ExitStack() as stack:
        for shard in shards:
            shard.lock(stack)
        size = sum(journal.size for shard in shards for journal in (shard.rollouts, shard.failures))
        ledger = stack.enter_context(Ledger(size))
        work = _Merge(shards, ledger, _Progress(tick, 2 * size))
        work.look()
        work.check_complete(partial=partial)
        merged = work.write(target)
    merged.missing_shards = [str(shard) for shard in missing]
    return merged


class _Progress:
    """Calls `tick` every few lines."""

    def __init__(self, tick: Tick, total: int) -> None:
        self._tick, self._total = tick, total
        self._done = self._lines = 0

    def add(self, line: bytes) -> None:
        self._done += len(line)
        self._lines += 1
        if self._lines % _TICK_EVERY == 0:
            self._tick(min(self._done / self._total, 1.0))


class _Merge:
    def __init__(self, shards: list[ShardRun], ledger: Ledger, progress: _Progress) -> None:
        self._shards, self._ledger, self._progress = shards, ledger, progress
        self._missing = 0

    def look(self) -> None:
        """Read all lines once, to know which of them count."""
        ledger, progress = self._ledger, self._progress
        for index, shard in enumerate(self._shards):
            for journal in (shard.rollouts, shard.failures):
                journal.first = ledger.lines
                for _, _, line, row in journal.lines():
                    ledger.add(index, row, failed=journal.failures)
                    progress.add(line)
        ledger.settle()

    def check_complete(self, *, partial: bool) -> None:
        """Refuse a shard that was stopped before its last rollout, unless a `partial` run is wanted."""
        for index, shard in enumerate(self._shards):
            missing = max(0, shard.expected - self._ledger.rollouts[index])
            self._missing += missing
            if missing and not partial:
                cause = f"shard {shard.shard} in {shard.path} lacks {missing:,} of its {shard.expected:,} rollouts"
                raise UserError(cause, "Continue it with ludus collect --resume, or add --partial")

    def write(self, target: Path) -> Merged:
        """Write the run to a draft folder, then rename it."""
        draft = draft_path(target)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            draft.mkdir()
            merged = self._write_draft(draft, target)
            _sync(draft)
            draft.rename(target)
            _sync(target.parent)
        except OSError as error:
            raise UserError(
                f"cannot write {target}: {error.strerror}", "Make room or choose another --output"
            ) from error
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        return merged

    def _write_draft(self, draft: Path, target: Path) -> Merged:
        files, shards, ledger = Files(draft), self._shards, self._ledger
        metrics = Metrics(shards[0].options["repeats"], shards[0].stored.scales)
        written = {False: 0, True: 0}
        with files.rollouts.open("xb") as rollouts, files.failures.open("xb") as failures:
            for journal, number, line, row in _in_turns(shards):
                state = ledger[number]
                if state != LineState.DUPLICATE:
                    (failures if journal.failures else rollouts).write(line)
                    written[journal.failures] += 1
                if state == LineState.COUNTS:
                    try:
                        metrics.add(rollout_of(row))
                    except (AttributeError, KeyError, TypeError, ValueError, Failure) as error:
                        name = f"rollout {row['rollout_id']:.80}"
                        raise UserError(f"{journal.path}: {name} cannot be read: {error}", "Remove its line") from error
                self._progress.add(line)
            for file in (rollouts, failures):
                file.flush()
                os.fsync(file.fileno())
        summary = self._summary(metrics)
        write_whole(files.metrics, indented_json(summary) + b"\n")
        write_run(files.run, _description(shards))
        torn = sum(journal.torn for shard in shards for journal in (shard.rollouts, shard.failures))
        return Merged(
            output=str(target),
            shards=len(shards),
            rollouts=written[False],
            failures=written[True],
            missing_rollouts=self._missing,
            duplicates=ledger.duplicates,
            torn=torn,
            counts=summary["counts"],
            mean_reward=summary["reward"]["mean"],
        )

    def _summary(self, metrics: Metrics) -> dict[str, Any]:
        """The metrics of the whole run. Shards run side by side: the longest one is the time of the run."""
        summaries = [shard.metrics() for shard in self._shards]
        walls = [shard.get("seconds", {}).get("wall") for shard in summaries]
        summary = metrics.summary(max((wall for wall in walls if isinstance(wall, (int, float))), default=None))
        models = [shard["model"] for shard in summaries if "model" in shard]
        loops = [shard["loop"] for shard in summaries if "loop" in shard]
        summary["model"] = added_stats(models)
        processes = {name: _counts(summaries, "workers", name) for name in ("count", "died")}
        summary["workers"] = {"count": max(processes["count"], default=1), "died": sum(processes["died"])}
        parts = Progress().checkpoints()
        summary["checkpoints"] = {name: sum(_counts(summaries, "checkpoints", name)) for name in parts}
        summary["loop"] = max(loops, key=lambda loop: loop.get("lag", {}).get("max", 0.0), default={})
        summary["warnings"] = list(dict.fromkeys(line for shard in summaries for line in shard.get("warnings", ())))
        return summary


def _in_turns(shards: list[ShardRun]) -> Iterator[Line]:
    """The lines of one task of each shard, again and again, until all are read."""
    waiting = [groupby(shard.lines(), lambda line: line.row["task_id"]) for shard in shards]
    while waiting:
        left = []
        for groups in waiting:
            group = next(groups, None)
            if group is not None:
                yield from group[1]
                left.append(groups)
        waiting = left


def _counts(metrics: list[dict[str, Any]], part: str, name: str) -> list[int]:
    counts = [summary.get(part, {}).get(name) for summary in metrics]
    return [value for value in counts if isinstance(value, int)]


def _description(shards: list[ShardRun]) -> dict[str, Any]:
    """The run.json of the whole run, and where each shard came from."""
    first = shards[0]
    options = {key: value for key, value in first.options.items() if key != "tasks"}
    origins = [
        {"shard": str(shard.shard), **{key: shard.described.get(key) for key in ("started", "versions", "git")}}
        for shard in shards
    ]
    started = min((origin["started"] for origin in origins if isinstance(origin["started"], str)), default=None)
    return {**first.described, "identity": first.identity, "options": options, "started": started, "shards": origins}


def _sync(folder: Path) -> None:
    """Make the names in a folder durable. Some file systems cannot do that for folders."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
