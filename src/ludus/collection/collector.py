"""The collector: turns a plan into recorded rollouts. It hands out work, and an engine plays it.

The work of a task is handed out when an engine asks for it, so the input is not read ahead. A resumed run leaves out
what its journals hold.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, Protocol

from ludus.collection.branching import Branches, BranchPoint
from ludus.collection.checkpoints import DirectWriter
from ludus.collection.control import Control, ControlledJobs
from ludus.collection.engines.playing import Playing, PlaySettings
from ludus.collection.metrics import Metrics
from ludus.collection.output import Output
from ludus.collection.plan import CollectionPlan, TaskWork
from ludus.collection.progress import Progress
from ludus.collection.recording import Recorder, Sink
from ludus.collection.stragglers import ENDED_BY, is_ended_by
from ludus.collection.watchdog import LoopWatchdog
from ludus.errors import UserError
from ludus.rollout import Rollout, rollout_id
from ludus.runtime.failure_kinds import kind_of
from ludus.runtime.running import allow_open_files
from ludus.store.lines import StoredLines
from ludus.store.resume import read_attempts, read_rollouts
from ludus.task import Task


class Engine(Protocol):
    """Plays the work of a collection, and gives every finished rollout to the recorder.

    An engine whose rollouts are played in other processes takes rows as lines of JSON (`takes_lines`).
    """

    takes_lines: bool

    async def run(self, work: Iterator[TaskWork], collector: Collector) -> None:
        """Play all of the work."""

    def model_stats(self) -> dict[str, Any]:
        """The statistics of the model for metrics.json."""

    def processes(self) -> dict[str, int]:
        """How many worker processes there were, and how many died, for metrics.json."""


class FinalCheck(Protocol):
    """What was found out about the records of a run, as a sentence."""

    problems: list[str]  #: what is wrong with the records
    warnings: list[str]

    def row(self) -> dict[str, Any]:
        """The check as metrics.json has it."""


class ThisProcess:
    """The engine of one process: plain awaits on the running event loop."""

    takes_lines = False

    def __init__(self, settings: PlaySettings) -> None:
        self._settings = settings

    async def run(self, work: Iterator[TaskWork], collector: Collector) -> None:
        """Play all of the work."""
        recorder, progress = collector.recorder, collector.progress
        turns = DirectWriter(recorder.turns) if recorder.turns is not None else None
        playing = Playing(self._settings, recorder, progress, collector.watchdog, turns)
        # `progress.skipped` is not subtracted: it may count rows that are not in the input now.
        count = max(1, min(self._settings.concurrency, progress.total))
        async with playing:
            if recorder.turns is not None and recorder.turns.unfinished:  # an earlier run was interrupted
                work = map(recorder.with_turns, work)
            jobs = chain.from_iterable(map(playing.jobs, work))
            collector.control.raise_to = lambda asked: self._raise(playing, min(asked, progress.total), progress)
            await playing.play(ControlledJobs(jobs, collector.control, lambda: len(progress.in_flight)), count)
            recorder.finish()

    def _raise(self, playing: Playing, count: int, progress: Progress) -> None:
        """Play more rollouts at once, if the system allows that many open files."""
        try:
            if self._settings.model.connects:
                allow_open_files(count)
        except UserError as error:
            progress.notices.append(str(error))
        else:
            playing.raise_concurrency(count)

    def model_stats(self) -> dict[str, Any]:
        """The statistics of the model."""
        return self._settings.model.stats()

    def processes(self) -> dict[str, int]:
        """This process alone."""
        return {"count": 1, "died": 0}


class Collector:
    """Collects the rollouts of a plan on an engine, by default in this process. Each rollout goes to its journal in
    `output` and to `sink`. `final_check`, if there is one, is called when all rollouts have ended."""

    def __init__(
        self,
        plan: CollectionPlan,
        output: Output | None = None,
        *,
        sink: Sink | None = None,
        engine: Engine | None = None,
        progress: Progress | None = None,
    ) -> None:
        play = plan.options.play
        self.plan, self.output = plan, output or Output()
        self.metrics = Metrics(play.repeats, plan.environments)
        self.progress = progress or Progress()
        self.watchdog = LoopWatchdog()
        self.control = Control()
        self.recorder = Recorder(self.output, self.metrics, self.progress, sink, play.seed)
        self.engine = engine or ThisProcess(PlaySettings(plan.options, plan.model, plan.concurrency))
        self.final_check: Callable[[], FinalCheck] | None = None
        self._done: set[str] = set()  # rollout ids that are not played in this run
        self._attempts: Counter[str] = Counter()  # earlier attempts by rollout id
        self._good: Counter[str] = Counter()  # recorded rollouts by task id, if some may be enough
        self._recorded_offsets: dict[str, list[int]] = {}  # journal offsets by task id

    def restore(self) -> None:
        """Resume from the journals: count and skip finished rollouts, retry failed ones with attempts left."""
        recorded, failures = self.recorder.rollouts, self.recorder.failures
        assert recorded is not None, "a collection without files cannot be resumed"
        assert failures is not None
        plan, stop, repeats = self.plan, self.plan.options.stop, 0
        with StoredLines(recorded.path) as lines:
            for offset, rollout in read_rollouts(lines):
                repeats = max(repeats, rollout.job.repeat + 1)
                self._done.add(rollout.rollout_id)
                self.metrics.add(rollout)
                if stop.enough is not None:
                    self._good[rollout.job.task_id] += 1
                if plan.by_group:
                    self._recorded_offsets.setdefault(rollout.job.task_id, []).append(offset)
        failed, spent = dict[str, Rollout](), Counter[str]()
        for rollout, is_last in read_attempts(failures.path, lines.seen):
            repeats, name = max(repeats, rollout.job.repeat + 1), rollout.rollout_id
            if name in self._done:
                continue
            self._attempts[name] = rollout.job.attempt
            kind = rollout.error.kind if rollout.error is not None else ""
            spent[name] += kind_of(kind).costs_attempt
            if is_ended_by(kind, stop):
                spent[name] = stop.max_attempts
            if is_last:
                failed[name] = rollout
        wanted = plan.options.play.repeats
        if repeats > wanted:
            cause = f"{recorded.path} holds {repeats} repeats of a task, more than the {wanted} asked for"
            raise UserError(cause, f"Add --repeats {repeats}, or choose another --output")
        for name, rollout in failed.items():
            if spent[name] >= stop.max_attempts:
                self._done.add(name)
                self.metrics.add(rollout)
                ended = rollout.error is not None and rollout.error.kind in ENDED_BY
                self.progress.exhausted += not ended
        self.progress.skipped = len(self._done)
        if self.recorder.turns is not None:
            self.recorder.turns.restore(self._is_next)

    def _is_next(self, name: str, attempt: int) -> bool:
        """Whether a rollout is not done, and this attempt at it is not recorded."""
        return name not in self._done and attempt == self._attempts[name] + 1

    async def run(self) -> None:
        """Play all rollouts that are not done. A failed rollout is recorded; an error of a journal is raised."""
        self.progress.started = self.progress.last_change = time.perf_counter()
        await self.engine.run(self._work(), self)

    def _work(self) -> Iterator[TaskWork]:
        """The repeats of each task that are not done. A task without any is left out."""
        plan, repeats, is_new = self.plan, self.plan.options.play.repeats, not (self._done or self._attempts)
        for task_id, row, task, point, line in self._tasks():
            missing = dict.fromkeys(range(repeats), 1) if is_new else self._missing(task_id)
            if missing:
                recorded = self._recorded_offsets.get(task_id) or []
                environment, good = plan.environment_of(row), self._good[task_id] if self._good else 0
                yield TaskWork(task_id, environment, row, missing, task, [*recorded], point, line, good=good)

    def _missing(self, task_id: str) -> dict[int, int]:
        """The repeats of a task that are not done, each with the number of its attempt."""
        names = ((repeat, rollout_id(task_id, repeat)) for repeat in range(self.plan.options.play.repeats))
        return {repeat: self._attempts[name] + 1 for repeat, name in names if name not in self._done}

    def _tasks(self) -> Iterator[tuple[str, dict[str, Any], Task | None, BranchPoint | None, bytes]]:
        rows = self.plan.rows
        if self.engine.takes_lines:
            return ((task_id, row, None, None, line) for task_id, row, line in rows.encoded())
        if isinstance(rows, Branches):
            return ((*task, b"") for task in rows.points())
        return ((*task, None, b"") for task in rows)
