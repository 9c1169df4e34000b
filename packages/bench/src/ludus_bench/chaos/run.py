"""Faults in one collection: in its plan, its journals and its workers, and the check of its records at the end."""

from __future__ import annotations

import errno
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any, Self

from ludus.collection.collector import Collector
from ludus.collection.engines.connection import WorkerConnection
from ludus.collection.engines.leasing import LeasingEngine
from ludus.collection.options import Options
from ludus.collection.plan import CollectionPlan
from ludus.collection.progress import Mark, Progress
from ludus.errors import UserError
from ludus.rollout import rollout_id
from ludus.store.files import Files
from ludus.store.journal import Journal
from ludus_bench.chaos.injection import Injector
from ludus_bench.chaos.rates import Chaos
from ludus_bench.chaos.records import Faults, RecordCheck, check_records


class ChaosRun:
    """The faults of one collection: in its engine, in its journals, and in what this process plays."""

    def __init__(self, options: Options, files: Files | None) -> None:
        """Read `--chaos`. Refuses it where the records could not be checked."""
        self.chaos = Chaos.parse(options.play.chaos or "")
        self.marks: list[Mark] = []
        self._options = options
        if files is None or options.rows.branch is not None or options.play.agent is not None:
            raise UserError("--chaos needs --output, and cannot be used with --branch or --agent", "Leave it out")
        if options.files.resume:
            sizes = (path.stat().st_size for path in (files.rollouts, files.failures) if path.exists())
            self.chaos.round = sum(sizes)

    def warnings(self) -> list[str]:
        """What will not happen, and why."""
        engine, warnings = self._options.engine, []
        if self.chaos.worker_kill and not engine.has_workers:
            warnings.append("worker_kill kills nothing: there are no worker processes without --workers")
        if self.chaos.node_kill and engine.ray is None:
            warnings.append("node_kill kills nothing: there are no nodes without --ray")
        return warnings

    def wrap(self, plan: CollectionPlan) -> CollectionPlan:
        """The plan with a model and environments that fail, here or in the worker processes."""
        plan = replace(plan, options=plan.options.replace(chaos=str(self.chaos)))
        if plan.options.engine.has_workers:
            return plan
        injector, environment_of = Injector(self.chaos, self.marks), plan.environment_of
        return replace(
            plan, model=injector.model(plan.model), environment_of=lambda row: injector.environment(environment_of(row))
        )

    def break_collector(self, collector: Collector) -> None:
        """Break the journals and the engine of a collector, and let it note the faults."""
        collector.progress.marks = self.marks
        for journal in (collector.recorder.rollouts, collector.recorder.failures):
            if journal is not None:
                _fill_disk(journal, Injector(self.chaos, self.marks))
        if isinstance(collector.engine, LeasingEngine):
            killer = WorkerKiller(self.chaos, collector.progress)
            collector.engine.on_started = killer.follow
        collector.final_check = partial(self.check, collector)

    def check(self, collector: Collector) -> RecordCheck:
        """Whether every rollout has one record, and none has a reward although it met a fault."""
        rollouts, failures = collector.recorder.rollouts, collector.recorder.failures
        assert rollouts is not None
        assert failures is not None
        repeats, faults = range(self._options.play.repeats), Faults.of(self.marks)
        expected = [rollout_id(task_id, repeat) for task_id, _, _ in collector.plan.rows for repeat in repeats]
        problems = check_records(expected, rollouts.read(), failures.read(), faults)
        wanted, killed, warnings = self.chaos.node_kill, faults.counts["node_kill"], []
        if self._options.engine.ray is not None and killed < wanted:
            warnings = [f"node_kill killed {killed} of {wanted} nodes: it spares the head's and the driver's"]
        return RecordCheck(dict(faults.counts), len(expected), problems, warnings)


class WorkerKiller:
    """Kills worker processes and nodes of a cluster. `progress` is that of the run."""

    def __init__(self, chaos: Chaos, progress: Progress) -> None:
        self._chaos, self._progress, self._draws = chaos, progress, 0

    def follow(self, worker: WorkerConnection) -> None:
        """Kill a worker, or its machine, after results that it delivered."""
        worker.frames = _FollowedFrames(worker, self)

    async def delivered(self, worker: WorkerConnection, results: int) -> None:
        """A worker has delivered results, and they are recorded."""
        for _ in range(results if not worker.ended else 0):
            self._draws += 1
            if self._chaos.strikes("worker_kill", self._draws):
                self._progress.marks.append(("worker_kill", None))
                worker.kill()
                break
        progress, wanted = self._progress, self._chaos.node_kill
        killed = Faults.of(progress.marks).counts["node_kill"]
        is_due = progress.finished * (wanted + 1) >= progress.total * (killed + 1)  # spread over the run
        if results and killed < wanted and is_due and not worker.ended and await worker.kill_machine():
            progress.marks.append(("node_kill", None))


class _FollowedFrames:
    """The frames of a worker. Before the next one is read, the last one is recorded."""

    def __init__(self, worker: WorkerConnection, killer: WorkerKiller) -> None:
        self._frames, self._worker, self._killer, self._results = worker.frames, worker, killer, 0

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> tuple[Any, memoryview]:
        results, self._results = self._results, 0
        if results:
            await self._killer.delivered(self._worker, results)
        head, body = await anext(self._frames)
        self._results = len(head.get("results") or ())
        return head, body


def _fill_disk(journal: Journal, injector: Injector) -> None:
    """Make writes of a journal fail now and then, as on a full disk."""
    writes = count(1)

    def before_write() -> None:
        if injector.strikes("disk_full", journal.path.name, next(writes)):
            raise OSError(errno.ENOSPC, "No space left on device")

    journal.before_write = before_write
