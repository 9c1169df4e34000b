"""Recording rollouts that have ended: each goes to its journal, to the metrics and to the sink.

An engine in this process records `Rollout` objects. An engine with processes records lines that a worker encoded: they
are written as they are, and only a sink makes this process read them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import orjson

from ludus.collection.metrics import Metrics
from ludus.collection.output import Output
from ludus.collection.plan import Recorded, TaskWork
from ludus.collection.progress import Progress
from ludus.errors import Failure, UserError
from ludus.rollout import Rollout, rollout_id
from ludus.runtime.failure_kinds import kind_of
from ludus.store.journal import FullDisk, Journal

#: If the first 8 rollouts fail in the same way, such as a refused key, the run stops.
FIRST_FAILURES = 8

#: Seconds between retries on a full disk.
FULL_DISK_WAITS = (0.1, 1.0, 10.0)

Sink = Callable[[Rollout], Awaitable[None]]


@dataclass(slots=True)
class EncodedRollout:
    """A rollout that a worker played: its line, a summary for the metrics, the work it belongs to, and its id."""

    line: memoryview | bytes
    summary: Rollout
    work: TaskWork
    name: str = ""

    def decode(self, seed: int) -> Rollout:
        """The whole rollout, with the task and the row that this process has read. `seed` is the run's."""
        rollout = Rollout.from_row(orjson.loads(self.line))
        job = self.work.job(seed, rollout.job.repeat)
        job.origin = rollout.job.origin
        rollout.job = job
        return rollout


class Recorder:
    """Records the rollouts of one run. A full disk and a failing sink raise an error. A failed rollout does not, unless
    the first rollouts of the run all fail with the same kind, and that kind stops a run."""

    def __init__(
        self, output: Output, metrics: Metrics, progress: Progress, sink: Sink | None = None, seed: int = 0
    ) -> None:
        self.rollouts, self.failures, self.turns = output.rollouts, output.failures, output.turns
        self._metrics, self._progress, self._sink, self._seed = metrics, progress, sink, seed
        self._first_failures: list[Failure] = []
        self._warned: set[float] = set()  # disk-full waits already reported to the user

    def add(self, rollout: Rollout) -> Awaitable[None] | None:
        """Record a rollout. Returns the sink's awaitable, if there is a sink."""
        journal = self.rollouts if rollout.error is None else self.failures
        if journal is not None:
            try:
                journal.append(rollout.encode())
            except FullDisk:
                return self.add_group([rollout])
        self._end(rollout.rollout_id, rollout)
        if rollout.error is not None:
            self._stop_if_all_fail()
        return self._sink(rollout) if self._sink is not None else None

    async def add_group(self, rollouts: list[Rollout]) -> None:
        """Record rollouts that were judged together, with one write: a group's members all fail, or none does."""
        await self._add_lines([(rollout.rollout_id, rollout, rollout.encode()) for rollout in rollouts])
        if self._sink is not None:
            for rollout in rollouts:
                await self._sink(rollout)

    async def add_encoded(self, rollouts: list[EncodedRollout]) -> None:
        """Record rollouts of a worker, with one write for each journal."""
        await self._add_lines([(rollout.name, rollout.summary, rollout.line) for rollout in rollouts])
        if self._sink is not None:
            for rollout in rollouts:
                await self._sink(rollout.decode(self._seed))

    async def _add_lines(self, ended: list[tuple[str, Rollout, memoryview | bytes]]) -> None:
        """Write and count rollouts that ended: the id, what is counted, and the line of each."""
        for journal, failed in ((self.rollouts, False), (self.failures, True)):
            lines = [line for _, rollout, line in ended if (rollout.error is not None) is failed]
            if lines and journal is not None:
                await self._append(journal, b"\n".join(lines))
        for name, rollout, _ in ended:
            self._end(name, rollout)
        self._stop_if_all_fail()

    async def _append(self, journal: Journal, lines: bytes) -> None:
        """Append lines. On a full disk, retry a few times: someone may make room."""
        for seconds in FULL_DISK_WAITS:
            try:
                journal.append(lines)
                self._warned.clear()
                return
            except FullDisk as error:
                if seconds not in self._warned:  # once for all rollouts that wait
                    self._warned.add(seconds)
                    self._progress.notices.append(f"{error} (waiting {seconds:g} s, then it is written again)")
                await asyncio.sleep(seconds)
        journal.append(lines)

    def read_recorded(self, offset: int) -> dict[str, Any]:
        """The row of a rollout that an earlier run recorded."""
        assert self.rollouts is not None, "only a collection with files is resumed"
        return self.rollouts.read_at(offset)

    def recorded_line(self, recorded: Recorded) -> bytes:
        """The line of a rollout that an earlier run recorded."""
        assert self.rollouts is not None, "only a collection with files is resumed"
        return self.rollouts.line_at(recorded) if isinstance(recorded, int) else recorded

    def with_turns(self, work: TaskWork) -> TaskWork:
        """The work with the saved turns of its repeats: they travel with it to any engine."""
        if self.turns is not None and self.turns.unfinished:
            turns = {repeat: self.turns.lines(rollout_id(work.task_id, repeat)) for repeat in work.repeats}
            work.turns = {repeat: lines for repeat, lines in turns.items() if lines}
        return work

    def finish(self) -> None:
        """The end of the run: if all rollouts of a short run failed in the same way, that is an error too."""
        self._stop_if_all_fail(min(FIRST_FAILURES, self._progress.finished))

    def _end(self, name: str, rollout: Rollout) -> None:
        """Count a rollout that is written, and drop its saved turns."""
        if self.turns is not None:
            self.turns.end(name)
        self._metrics.add(rollout)
        progress = self._progress
        progress.finished += 1
        written = rollout.usage.get("output_tokens", 0)
        if isinstance(written, int):
            progress.output_tokens += written
            progress.useful_tokens += written if rollout.error is None else 0
        progress.last_change = time.perf_counter()
        if rollout.error is not None and progress.finished <= FIRST_FAILURES:
            self._first_failures.append(rollout.error)

    def _stop_if_all_fail(self, expected: int = FIRST_FAILURES) -> None:
        """Stop the run if its first `expected` rollouts all failed with the same stage and a kind that stops it."""
        failures = self._first_failures
        kinds = {(failure.stage, failure.kind) for failure in failures}
        if len(failures) >= expected and len(kinds) == 1 and (kind := kind_of(failures[0].kind)).stops_run:
            first = failures[0]
            raise UserError(f"{first.where}: {first.cause}" if first.where else first.cause, kind.hint)
