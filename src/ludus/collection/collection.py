"""One collection from its options to its results: files, identity, engine, metrics.

`ludus collect`, `ludus.collect` and the trainers' feed use it.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ludus.collection.branching import Branches, check_agents
from ludus.collection.checkpoints import without_checkpoints
from ludus.collection.collector import Collector, Engine, FinalCheck
from ludus.collection.engine_choice import engine_of
from ludus.collection.engines.playing import PlaySettings
from ludus.collection.forgotten_tools import forgotten_tools
from ludus.collection.input_choice import input_rows
from ludus.collection.observers import RunObserver, open_observer
from ludus.collection.options import Options
from ludus.collection.output import Output, open_output, write_start
from ludus.collection.own_metrics import own_metrics
from ludus.collection.plan import CollectionPlan
from ludus.collection.progress import Progress
from ludus.collection.recording import Sink
from ludus.collection.results import Results, Run, grouped
from ludus.collection.reward_ranges import outside_of_range
from ludus.data.row_environments import EnvironmentSpec, RowEnvironments
from ludus.data.rows import Rows, Survey
from ludus.data.shards import Shard
from ludus.environment import Environment
from ludus.errors import UserError
from ludus.model import Model
from ludus.models import open_model
from ludus.outcome import Outcome
from ludus.prompt import load_prompt
from ludus.rollout import Rollout
from ludus.runtime.garbage import fewer_garbage_collections
from ludus.runtime.installed import packaged
from ludus.runtime.running import allow_open_files
from ludus.store.drafts import write_whole
from ludus.store.files import Files
from ludus.store.run import identity, indented_json

Watcher = Callable[[Collector], Coroutine[Any, Any, None]]

#: One environment or several; None if the rows name theirs.
Environments = EnvironmentSpec | Sequence[EnvironmentSpec] | None


class Collection(Results):
    """One collection: `prepare` it, `run` it once, then read its results.

    `metrics` is the content of metrics.json. Iterating yields the completed and masked rollouts, read from the output
    files if there are any. `rollouts` lists all rollouts, failed ones included. `warnings` are
    sentences about mistakes that did not stop the run, such as code that blocks the event loop. `print` shows a table.
    """

    def __init__(self, environment: Environments | RowEnvironments, options: Options, rows: Rows | None = None) -> None:
        """`rows` replaces the rows that the options name."""
        self.options = options
        self.metrics: dict[str, Any] = {}
        self._rollouts: list[Rollout] = []  # of a collection without files
        self._own_metrics: dict[str, Any] = {}
        self.warnings: list[str] = []
        self.files = Files(options.files.output) if options.files.output is not None else None
        self.observer: RunObserver | None = None  #: what watches the run, if anything does
        self.final_check: FinalCheck | None = None  #: what a check of the records found, if there was one
        play, shard = options.play, options.rows.shard
        if isinstance(environment, RowEnvironments):
            self._environments = environment
        else:
            prompt = load_prompt(options.rows.prompt) if options.rows.prompt is not None else None
            self._environments = RowEnvironments(
                environment, play.environment_settings, resources=play.resources, agent=play.agent, prompt=prompt
            )
        self.model = _ServerModel(play.agent) if play.agent is not None else open_model(play.model, play.model_settings)
        self.rows = rows if rows is not None else input_rows(options, self._environments)
        self.rows.shard = Shard.parse(shard) if shard is not None else None

    def __iter__(self) -> Iterator[Rollout]:
        """The completed and masked rollouts."""
        if self.files is None:
            yield from (rollout for rollout in self._rollouts if rollout.error is None)
            return
        yield from Run(self.files.rollouts)

    def __len__(self) -> int:
        """How many rollouts are completed or masked."""
        return len(Run(self.files.rollouts)) if self.files is not None else sum(1 for _ in self)

    @property
    def rollouts(self) -> list[Rollout]:
        """All rollouts as each of them ended, failed ones included."""
        return Run(self.files.rollouts).rollouts if self.files is not None else self._rollouts

    def _at(self, indices: Iterable[int]) -> list[Rollout]:
        if self.files is not None:
            return Run(self.files.rollouts)._at(indices)
        rollouts = list(self)
        return [rollouts[index] for index in indices]

    def groups(self) -> Iterator[list[Rollout]]:
        """The completed and masked rollouts of each task, ordered by repeat."""
        return Run(self.files.rollouts).groups() if self.files is not None else grouped(self._rollouts)

    def failures(self) -> Iterator[Rollout]:
        """The failed attempts. A retry of a failed attempt may have completed."""
        if self.files is not None:
            return Run(self.files.rollouts).failures()
        return (rollout for rollout in self._rollouts if rollout.outcome is Outcome.FAILED)

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
        survey = self._check(tick)
        plan = self._plan(checkpoint=engine is None)
        chaos: Any = None
        if self.options.play.chaos is not None:
            chaos = packaged("ludus.faults", "run", "--chaos", "bench")(self.options, self.files)
        if chaos is not None:
            self.warnings += chaos.warnings()
            plan = chaos.wrap(plan)
        collector = self._open(plan, survey, sink, engine)
        if chaos is not None:
            chaos.break_collector(collector)
        return collector

    def _check(self, tick: Callable[[int], None]) -> Survey:
        """Read all rows once, and refuse rows and settings that cannot be played."""
        if self.files is not None and isinstance(self.rows.source, Path):
            self.files.check_input(self.rows.source)
        survey = self.rows.survey(tick)
        self.warnings += self.rows.warnings
        for environment in self._environments.all():
            self.warnings += forgotten_tools(environment, self.rows.offered_tools)
        self._environments.check_settings()
        if isinstance(self.rows, Branches):
            check_agents(self._environments.all())
        return survey

    def _plan(self, *, checkpoint: bool) -> CollectionPlan:
        """What is played. Turns are saved with `checkpoint`, where that is possible and not unwanted."""
        environments = self._environments.all()
        checkpoint = self._saves_turns() and checkpoint
        plan = CollectionPlan(self.options, self.rows, self._environments.of_row, self.model, environments, checkpoint)
        if self.options.stop.by_task and plan.by_group:
            together = next(environment.name for environment in environments if environment.resources.by_group)
            cause = f"{together} judges the rollouts of a task together (verify_group): none can be left out"
            raise UserError(cause, "Leave --enough and --group-deadline out, and set limits.group")
        return plan

    def _open(
        self, plan: CollectionPlan, survey: Survey, sink: Sink | None, engine: Callable[[PlaySettings], Engine] | None
    ) -> Collector:
        """Open the engine, the files and what watches the run. A resumed run takes up what the files hold."""
        options, total = plan.options, survey.in_shard * plan.options.play.repeats
        if self.model.connects:
            at_once = min(plan.concurrency, total)
            allow_open_files(-(-at_once // (options.engine.workers or 1)))  # the limit is for each process
        run_identity = self._identity(survey)
        if engine is not None:
            chosen = engine(PlaySettings(options, plan.model, plan.concurrency))
        else:
            chosen = engine_of(plan, self._environments)
        progress = Progress()
        with contextlib.ExitStack() as on_error:
            say = progress.notices.append
            output = open_output(self.files, plan, run_identity, say) if self.files is not None else Output()
            on_error.callback(output.close)
            if (observer := open_observer(plan)) is not None:
                on_error.callback(observer.close)
                sink = observer.sink(sink)
            collector = Collector(plan, output, sink=sink, engine=chosen, progress=progress)
            if self.files is not None:
                if options.files.resume:
                    collector.restore()
                write_start(self.files, plan, run_identity, survey.in_shard, resumes=output.resumes)
            progress.expect(total)
            on_error.pop_all()
        self.observer = observer
        return collector

    def _identity(self, survey: Survey) -> dict[str, Any]:
        """What makes this run the same as another one."""
        dataset: dict[str, Any] = {"name": Path(self.rows.name).name, "rows": survey.rows, "digest": survey.digest}
        if isinstance(self.rows, Branches):
            dataset["turn"] = self.rows.turn
        if self.rows.revision is not None:
            dataset |= {"name": self.rows.name, "revision": self.rows.revision}
        environments, seed, shard = self._environments.all(), self.options.play.seed, self.options.rows.shard
        return identity(environments, self.model, dataset, seed, shard)

    async def run(self, collector: Collector, watch: Watcher | None = None) -> None:
        """Run the collection. The files are valid even after an error or a cancel."""
        if self.observer is None:
            await self._collect(collector, watch)
            return
        async with self.observer.watching(collector.metrics, collector.progress):
            await self._collect(collector, watch)

    async def _collect(self, collector: Collector, watch: Watcher | None) -> None:
        began = time.perf_counter()
        watching = asyncio.create_task(watch(collector)) if watch is not None else None
        try:
            with fewer_garbage_collections():
                await collector.run()
            self._own_metrics = await own_metrics(self._environments.all(), lambda: iter(self), self.warnings)
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
        if self._own_metrics:
            self.metrics["own"] = self._own_metrics
        progress = collector.progress
        self.metrics["checkpoints"] = progress.checkpoints()
        self.warnings += [*collector.watchdog.warnings().values(), *_deaths(self.metrics["workers"]["died"])]
        self.warnings += _moved(self.metrics["model"].get("endpoints") or ())
        self.warnings += filter(None, [self.metrics["model"].get("advice")])
        if progress.started_over:
            self.warnings.append(_started_over(progress.started_over))
        for environment in self._environments.all():
            self.warnings += outside_of_range(environment, *collector.metrics.extremes(environment.name))
        self.metrics["warnings"] = self.warnings
        if ended and collector.final_check is not None:
            self.final_check = collector.final_check()
            self.warnings += self.final_check.warnings
            self.metrics["chaos"] = self.final_check.row()
        try:
            collector.output.close()
        finally:
            if self.files is not None:
                write_whole(self.files.metrics, indented_json(self.metrics) + b"\n")

    async def add_rollout(self, rollout: Rollout) -> None:
        """Add a rollout to `rollouts`: the sink of a collection without output files."""
        self._rollouts.append(rollout)

    def _metrics(self) -> dict[str, Any]:
        return self.metrics

    def _title(self) -> str:
        return f"{', '.join(environment.name for environment in self.environments())} with {self.model.name}"

    def _saves_turns(self) -> bool:
        """Whether turns are saved. If they were asked for, the warnings say where they are not."""
        environments, asked = self._environments.all(), self.options.files.checkpoint
        if asked is False or self.files is None:
            if asked:
                self.warnings.append("turns are not saved: there is no --output")
            return False
        left_out = without_checkpoints(environments)
        self.warnings += left_out if asked else []
        return len(left_out) < len(environments)


def _deaths(count: int) -> list[str]:
    """The warning that worker processes died."""
    played = "Their rollouts were played again" if count > 1 else "Its rollouts were played again"
    return [f"{count} worker process{'es' * (count > 1)} died. {played}"] if count else []


def _moved(endpoints: Iterable[dict[str, Any]]) -> list[str]:
    """The warnings that rollouts went on at another endpoint."""
    return [
        f"rollouts that moved from {endpoint['url']}, which was unreachable or answered 503, to another: {moved}"
        for endpoint in endpoints
        if (moved := endpoint.get("moved"))
    ]


def _started_over(count: int) -> str:
    """The warning that interrupted rollouts could not be brought back."""
    what = "an interrupted rollout" if count == 1 else f"{count} interrupted rollouts"
    return f"{what} started over: a tool returned a different result, or the saved turns could not be replayed"


class _ServerModel(Model):
    """Stands for the model that an agent server calls. Its name is the server's URL."""

    connects = True

    def __init__(self, url: str) -> None:
        self.name = url
