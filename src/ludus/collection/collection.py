"""One collection from its options to its results: files, identity, engine, metrics.

`ludus collect`, `ludus.collect` and the trainers' feed use it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ludus.collection.branching import Branches, check_agents
from ludus.collection.chaos import Chaos, check_records, fill_disk
from ludus.collection.checkpoints import without_checkpoints
from ludus.collection.collector import Collector, Engine, play_settings
from ludus.collection.engine_choice import engine_of_options
from ludus.collection.engines.playing import PlaySettings
from ludus.collection.forgotten_tools import forgotten_tools
from ludus.collection.input_choice import input_rows
from ludus.collection.options import Options
from ludus.collection.output import open_journals, start_options, write_start
from ludus.collection.plan import CollectionPlan
from ludus.collection.recording import Sink
from ludus.collection.results import Results, Run, grouped
from ludus.data.row_environments import EnvironmentSpec, RowEnvironments
from ludus.data.rows import Rows
from ludus.data.shards import Shard
from ludus.environment import Environment
from ludus.errors import UserError
from ludus.model import Model
from ludus.models import open_model
from ludus.prompt import load_prompt
from ludus.rollout import Rollout, rollout_id
from ludus.runtime.garbage import fewer_garbage_collections
from ludus.runtime.running import allow_open_files
from ludus.store.drafts import write_whole
from ludus.store.journal import Journal
from ludus.store.run import (
    Files,
    identity,
    indented_json,
)
from ludus.store.turns import TurnJournal

if TYPE_CHECKING:
    from ludus.telemetry.telemetry import Telemetry

#: The upper limit of `--concurrency auto`.
MAX_AUTO_CONCURRENCY = 4096
Watcher = Callable[[Collector], Coroutine[Any, Any, None]]

#: One environment or several; None if the rows name theirs.
Environments = EnvironmentSpec | Sequence[EnvironmentSpec] | None


class Collection(Results):
    """One collection: `prepare` it, `run` it once, then read its results.

    `metrics` is the content of metrics.json. Iterating yields the completed and masked rollouts, read from the output
    files if there are any. Without output files, `rollouts` lists all rollouts, failed ones included. `warnings` are
    sentences about mistakes that did not stop the run, such as code that blocks the event loop. `print` shows a table.
    """

    def __init__(self, environment: Environments | RowEnvironments, options: Options, rows: Rows | None = None) -> None:
        """`rows` replaces the rows that the options name."""
        self.options = options
        self.metrics: dict[str, Any] = {}
        self.rollouts: list[Rollout] = []
        self.warnings: list[str] = []
        self.files = Files(options.output) if options.output is not None else None
        settings = dict(options.settings or {})
        model_settings = {key[6:]: settings.pop(key) for key in list(settings) if key.startswith("model.")}
        self._model_settings = dict(model_settings)
        if isinstance(environment, RowEnvironments):
            self._environments = environment
        else:
            prompt = load_prompt(options.prompt) if options.prompt is not None else None
            self._environments = RowEnvironments(
                environment, settings, resources=options.resources, agent=options.agent, prompt=prompt
            )
        self.model = open_model(options.model, model_settings) if options.agent is None else _ServerModel(options.agent)
        self.rows = rows if rows is not None else input_rows(options, self._environments)
        self.rows.shard = Shard.parse(options.shard) if options.shard is not None else None
        self._stack = contextlib.ExitStack()
        self._say: Callable[[str], None] = self.warnings.append
        self._journals: list[Journal] = []
        self._turns: TurnJournal | None = None
        self.telemetry: Telemetry | None = None  #: what watches the run, if anything does

    def __iter__(self) -> Iterator[Rollout]:
        """The completed and masked rollouts."""
        if self.files is None:
            yield from (rollout for rollout in self.rollouts if rollout.error is None)
            return
        yield from Run(self.files.rollouts)

    def groups(self) -> Iterator[list[Rollout]]:
        """The completed and masked rollouts of each task, ordered by repeat."""
        return Run(self.files.rollouts).groups() if self.files is not None else grouped(self.rollouts)

    def failures(self) -> Iterator[Rollout]:
        """The failed attempts. A retry of a failed attempt may have completed."""
        if self.files is not None:
            return Run(self.files.rollouts).failures()
        return (rollout for rollout in self.rollouts if rollout.error is not None)

    def environments(self) -> list[Environment]:
        """The environments of the rows."""
        return self._environments.all()

    def prepare(
        self,
        tick: Callable[[int], None] = lambda _: None,
        sink: Sink | None = None,
        engine: Callable[[PlaySettings], Engine] | None = None,
    ) -> Collector:
        """Check the rows, the files and the run's identity, so that mistakes are reported before any model call.

        `engine` makes an engine other than that of this process or of `workers`.
        """
        options = self.options
        if self.files is not None and isinstance(self.rows.source, Path):
            self.files.check_input(self.rows.source)
        survey = self.rows.survey(tick)
        self.warnings += self.rows.warnings
        for each in self._environments.all():
            self.warnings += forgotten_tools(each, self.rows.offered_tools)
        self._environments.check_settings()
        if isinstance(self.rows, Branches):
            check_agents(self._environments.all())
        adaptive = options.concurrency == "auto"
        plan = CollectionPlan(
            self.rows,
            self._environments.of_row,
            self.model,
            options.repeats,
            MAX_AUTO_CONCURRENCY if adaptive else int(options.concurrency or self.model.concurrency),
            options.seed,
            options.max_attempts,
            options.tokens,
            adaptive,
            any(environment.resources.by_group for environment in self._environments.all()),
            self._saves_turns() and engine is None,
            options.stragglers,
            self._chaos(),
            self._environments.all(),
            options.otel,
        )
        if options.stragglers.by_task and plan.by_group:
            together = next(each.name for each in plan.environments if each.resources.by_group)
            cause = f"{together} judges the rollouts of a task together (verify_group): none can be left out"
            raise UserError(cause, "Leave --enough and --group-deadline out, and set limits.group")
        if self.model.connects:
            at_once = min(plan.concurrency, survey.in_shard * options.repeats)
            allow_open_files(-(-at_once // (options.workers or 1)))  # the limit is for each process
        dataset: dict[str, Any] = {"name": Path(self.rows.name).name, "rows": survey.rows, "digest": survey.digest}
        if isinstance(self.rows, Branches):
            dataset["turn"] = self.rows.turn
        if self.rows.revision is not None:
            dataset |= {"name": self.rows.name, "revision": self.rows.revision}
        run_identity = identity(self._environments.all(), self.model, dataset, options.seed, options.shard)
        chosen: Engine | None = None
        if engine is not None:
            chosen = engine(play_settings(plan))
        elif options.ray is not None or (options.workers or 1) > 1:
            chosen = engine_of_options(plan, options, self._environments, self.model, self._model_settings)
        with contextlib.ExitStack() as on_error:
            on_error.callback(self._stack.close)
            resumes = False
            if self.files is not None:
                self._journals, resumes = open_journals(self.files, options, run_identity, self._stack)
                if plan.checkpoint:
                    turns = TurnJournal(self.files.turns, lambda why: self._say(why))
                    self._turns = self._stack.enter_context(turns)
            self.telemetry = self._open_telemetry(plan)
            if self.telemetry is not None:
                on_error.callback(self.telemetry.close)
                sink = self.telemetry.sink(sink)
            collector = Collector(plan, *self._journals, sink=sink, engine=chosen, turns=self._turns)
            self._say = collector.progress.notices.append
            if plan.chaos is not None:
                plan.chaos.round = sum(journal.size for journal in self._journals)
                for journal in self._journals:
                    fill_disk(journal, plan.chaos, collector.progress.faults)
            if self.files is not None:
                if options.resume:
                    collector.restore()
                resumes = resumes and not options.force
                started = start_options(options, plan, self.rows.name, survey.in_shard, self._model_settings)
                write_start(self.files.run, run_identity, started, resumes=resumes)
            collector.progress.expect(survey.in_shard * options.repeats)
            on_error.pop_all()
        return collector

    async def run(self, collector: Collector, watch: Watcher | None = None) -> None:
        """Run the collection. The files are valid even after an error or a cancel."""
        if self.telemetry is None:
            await self._collect(collector, watch)
            return
        async with self.telemetry.watching(collector.metrics, collector.progress):
            await self._collect(collector, watch)

    async def _collect(self, collector: Collector, watch: Watcher | None) -> None:
        began = time.perf_counter()
        watching = asyncio.create_task(watch(collector)) if watch is not None else None
        try:
            with fewer_garbage_collections():
                await collector.run()
        except BaseException:
            # On a full disk the metrics cannot be written either: report the first error, not this one.
            with contextlib.suppress(UserError, OSError):
                self._finish(collector, began)
            raise
        else:
            self._finish(collector, began, ended=True)
        finally:
            if watching is not None:
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)

    def _finish(self, collector: Collector, began: float, *, ended: bool = False) -> None:
        """Compute the metrics, close the journals, and write metrics.json."""
        self.metrics = collector.metrics.summary(round(time.perf_counter() - began, 3))
        self.metrics["model"] = collector.engine.model_stats()
        self.metrics["workers"] = collector.engine.processes()
        self.metrics["loop"] = collector.watchdog.summary()
        progress = collector.progress
        resumed = {"resumed": progress.resumed, "turns_kept": progress.turns_kept}
        self.metrics["checkpoints"] = {**resumed, "started_over": progress.started_over}
        self.warnings += [*collector.watchdog.warnings().values(), *_deaths(self.metrics["workers"]["died"])]
        if progress.started_over:
            self.warnings.append(_started_over(progress.started_over))
        self.metrics["warnings"] = self.warnings
        if ended and collector.plan.chaos is not None:
            self.metrics["chaos"] = self._check_chaos(collector)
        try:
            self._stack.close()
        finally:
            if self.files is not None:
                write_whole(self.files.metrics, indented_json(self.metrics) + b"\n")

    def _open_telemetry(self, plan: CollectionPlan) -> Telemetry | None:
        """What shall watch the run, opened."""
        options = self.options
        if not options.otel and options.metrics_port is None and not options.log_to:
            return None
        from ludus.telemetry.telemetry import Telemetry  # imported here: most runs have none
        from ludus.telemetry.writers import RunFacts

        names = ", ".join(each.name for each in plan.environments)
        output = Path(options.output) if options.output is not None else None
        settings: dict[str, Any] = {"environment": names, "model": self.model.name}
        settings |= {"dataset": Path(self.rows.name).name, "repeats": plan.repeats, "concurrency": plan.concurrency}
        settings |= {"workers": options.workers or 1, "seed": plan.seed, "output": str(output or "")}
        folder = output if output is None or output.suffix != ".jsonl" else output.parent
        facts = RunFacts(output.stem if output is not None else names, folder, settings)
        given = [options.log_to] if isinstance(options.log_to, str) else options.log_to or ()
        return Telemetry(facts, self.model if options.otel else None, options.metrics_port, given)

    def _chaos(self) -> Chaos | None:
        """The faults to inject."""
        options = self.options
        if options.chaos is None:
            return None
        chaos = Chaos.parse(options.chaos)
        if self.files is None or options.branch is not None or options.agent is not None:
            raise UserError("--chaos needs --output, and cannot be used with --branch or --agent", "Leave it out")
        if chaos.worker_kill and (options.workers or 1) == 1 and options.ray is None:
            self.warnings.append("worker_kill kills nothing: there are no worker processes without --workers")
        if chaos.node_kill and options.ray is None:
            self.warnings.append("node_kill kills nothing: there are no nodes without --ray")
        return chaos

    def _check_chaos(self, collector: Collector) -> dict[str, Any]:
        """Whether every rollout has one record, and none has a reward although it met a fault."""
        rollouts, failures = (journal.read() for journal in self._journals)
        repeats, faults = range(collector.plan.repeats), collector.progress.faults
        expected = [rollout_id(task_id, repeat) for task_id, _, _ in self.rows for repeat in repeats]
        problems = check_records(expected, rollouts, failures, faults)
        wanted, killed = collector.plan.chaos.node_kill if collector.plan.chaos else 0, faults.counts["node_kill"]
        if self.options.ray is not None and killed < wanted:
            self.warnings.append(f"node_kill killed {killed} of {wanted} nodes: it spares the head's and the driver's")
        return {"faults": dict(faults.counts), "rollouts": len(expected), "problems": problems}

    async def add_rollout(self, rollout: Rollout) -> None:
        """Add a rollout to `rollouts`: the sink of a collection without output files."""
        self.rollouts.append(rollout)

    def _metrics(self) -> dict[str, Any]:
        return self.metrics

    def _title(self) -> str:
        return f"{', '.join(each.name for each in self.environments())} with {self.model.name}"

    def _saves_turns(self) -> bool:
        """Whether turns are saved. If they were asked for, the warnings say where they are not."""
        environments, asked = self._environments.all(), self.options.checkpoint
        if asked is False or self.files is None:
            if asked:
                self.warnings.append("turns are not saved: there is no --output")
            return False
        left_out = without_checkpoints(environments)
        self.warnings += left_out if asked else []
        return len(left_out) < len(environments)


def _deaths(count: int) -> list[str]:
    """The warning that worker processes died."""
    played = "What they were playing was played again" if count > 1 else "What it was playing was played again"
    return [f"{count} worker process{'es' * (count > 1)} died. {played}"] if count else []


def _started_over(count: int) -> str:
    """The warning that interrupted rollouts could not be brought back."""
    what = "an interrupted rollout" if count == 1 else f"{count} interrupted rollouts"
    return f"{what} started over: a tool returned something else than before, or the saved turns could not be played"


class _ServerModel(Model):
    """Stands for the model that an agent server calls. Its name is the server's URL."""

    connects = True

    def __init__(self, url: str) -> None:
        self.name = url
