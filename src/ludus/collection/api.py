"""`ludus.collect` and `ludus.stream`: a whole collection as one call, in a script, in a notebook or from the
command line."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import orjson

from ludus.collection.branching import Branches, check_agents
from ludus.collection.collector import CollectionPlan, Collector, Sink
from ludus.collection.row_environments import RowEnvironments, Which
from ludus.collection.rows import Rows
from ludus.environment import Environment
from ludus.errors import UserError
from ludus.model import Model
from ludus.models import open_model
from ludus.rollout import Rollout
from ludus.runtime.running import allow_open_files, fewer_garbage_collections, run_to_end
from ludus.store.journal import Journal, write_whole
from ludus.store.run import Files, check_same, continued, describe, identity, readable, write_run

T = TypeVar("T")

#: How far `--concurrency auto` may go.
MOST_AT_ONCE = 4096
Watcher = Callable[[Collector], Coroutine[Any, Any, None]]


@dataclass
class Options:
    """Everything that can be said about a collection; the keyword arguments of `collect` and `stream`."""

    model: str | Model = "local"
    input: str | Path | Iterable[dict[str, Any]] | None = None
    dataset: str | None = None
    output: str | Path | None = None
    repeats: int = 1
    concurrency: int | Literal["auto"] | None = None
    limit: int | None = None
    resume: bool = False
    overwrite: bool = False
    force: bool = False
    seed: int = 0
    max_attempts: int = 3
    tokens: bool = False
    settings: dict[str, Any] | None = None
    resources: str | None = None  # the URL of a resources server to use instead of resources in this process
    agent: str | None = None  # the URL of an agent server that plays the rollouts, with its own model and resources
    branch: str | Path | None = None  # recorded rollouts to go on with, each with `repeats` continuations
    turn: int | None = None  # after how many of their model calls; -1 is before the last one

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        for name in ("repeats", "concurrency", "limit", "max_attempts"):
            value = getattr(self, name)
            if isinstance(value, (int, float)) and value < 1:
                raise UserError(f"{name} must be at least 1, not {value}")
        if self.resume and self.output is None:
            raise UserError("nothing says which collection to resume", "Name it: --output DIR")
        if self.resume and self.overwrite:
            raise UserError("--resume goes on with a collection and --overwrite deletes it", "Leave one of them out")


class Collection:
    """One collection: prepared, run once, and then a thing to read.

    `metrics` is the content of metrics.json. Iterate it for the completed and masked rollouts, read from disk where
    there is an output; without one, `rollouts` lists all of them, failed ones included.
    """

    def __init__(self, environment: Which | None, options: Options) -> None:
        self.options = options
        self.metrics: dict[str, Any] = {}
        self.rollouts: list[Rollout] = []
        self.files = Files(options.output) if options.output is not None else None
        settings = dict(options.settings or {})
        model_settings = {key[6:]: settings.pop(key) for key in list(settings) if key.startswith("model.")}
        self._environments = RowEnvironments(environment, settings, resources=options.resources, agent=options.agent)
        self.model = open_model(options.model, model_settings) if options.agent is None else _ServerModel(options.agent)
        self.rows = self._rows()
        self._stack = contextlib.ExitStack()
        self._journals: list[Journal] = []

    def __iter__(self) -> Iterator[Rollout]:
        """The completed and masked rollouts."""
        if self.files is None:
            yield from (rollout for rollout in self.rollouts if rollout.error is None)
            return
        with self.files.rollouts.open("rb") as lines:
            for line in lines:
                yield Rollout.from_row(orjson.loads(line))

    def environments(self) -> list[Environment]:
        """The environments that its rows are for."""
        return self._environments.all()

    def prepare(self, tick: Callable[[int], None] = lambda _: None, sink: Sink | None = None) -> Collector:
        """Check rows, files and identity, so that what can be known to go wrong does so before anything is spent."""
        options = self.options
        if self.files is not None and isinstance(self.rows.source, Path):
            self.files.check_input(self.rows.source)
        survey = self.rows.survey(tick)
        if isinstance(self.rows, Branches):
            check_agents(self._environments.all())
        adaptive = options.concurrency == "auto"
        plan = CollectionPlan(
            self.rows,
            self._environments.of_row,
            self.model,
            options.repeats,
            MOST_AT_ONCE if adaptive else int(options.concurrency or self.model.concurrency),
            options.seed,
            options.max_attempts,
            options.tokens,
            adaptive,
            any(environment.resources.by_group for environment in self._environments.all()),
        )
        if self.model.connects:
            allow_open_files(min(plan.concurrency, survey.rows * options.repeats))
        dataset: dict[str, Any] = {"name": Path(self.rows.name).name, "rows": survey.rows, "digest": survey.digest}
        if isinstance(self.rows, Branches):
            dataset["turn"] = self.rows.turn
        known = identity(self._environments.all(), self.model, dataset, options.seed)
        with contextlib.ExitStack() as unless_ready:
            unless_ready.callback(self._stack.close)
            used = self.files is not None and self._open_files(self.files, known)
            collector = Collector(plan, *self._journals, sink=sink)
            if self.files is not None:
                if options.resume:
                    collector.restore()
                self._write_run(self.files, known, plan, goes_on=used and not options.force)
            collector.progress.expect(survey.rows * options.repeats)
            unless_ready.pop_all()
        return collector

    async def run(self, collector: Collector, watch: Watcher | None = None) -> None:
        """Collect, and leave valid files whatever happens."""
        began = time.perf_counter()
        watching = asyncio.create_task(watch(collector)) if watch is not None else None
        try:
            with fewer_garbage_collections():
                await collector.run()
        except BaseException:
            # A disk that is full is full for these files too: what stopped the run is what there is to say.
            with contextlib.suppress(UserError, OSError):
                self._finish(collector, began)
            raise
        else:
            self._finish(collector, began)
        finally:
            if watching is not None:
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)

    def _finish(self, collector: Collector, began: float) -> None:
        """Sum up, let go of the journals, and write the metrics."""
        self.metrics = collector.metrics.summary(round(time.perf_counter() - began, 3))
        self.metrics["model"] = self.model.stats()
        try:
            self._stack.close()
        finally:
            if self.files is not None:
                write_whole(self.files.metrics, readable(self.metrics) + b"\n")

    async def keep(self, rollout: Rollout) -> None:
        """Remember a rollout where there is no file to hold it."""
        self.rollouts.append(rollout)

    def _rows(self) -> Rows:
        options, environments = self.options, self._environments
        if options.input is not None and options.dataset is not None:
            raise UserError("both an input and a dataset were named", "Leave one of --input and --dataset out")
        if options.branch is not None or options.turn is not None:
            if options.branch is None or options.turn is None:
                raise UserError("a branch needs both, --branch FILE and --turn K", "Example: --branch RUN --turn 2")
            if options.input is not None or options.dataset is not None:
                raise UserError("the rows of a branch are its recorded rollouts", "Leave --input and --dataset out")
            return Branches(options.branch, options.turn, environments.task, options.limit)
        source = options.input if options.input is not None else environments.rows(options.dataset)
        return Rows(source, environments.task, options.limit, options.seed)

    def _open_files(self, files: Files, known: dict[str, Any]) -> bool:
        """Open the journals. Returns whether they hold something that this run goes on with."""
        options = self.options
        # Opening a journal repairs it, so what is not ours, or not to be changed, must be refused before.
        found = files.in_use()
        if found is not None and (options.overwrite or not options.resume) and not files.run.exists():
            raise UserError(f"{found} is no collection: no {files.run.name} is beside it", "Choose another --output")
        used = found is not None and not options.overwrite
        if used and not options.resume:
            raise UserError(
                f"{options.output} holds a collection already",
                "Add --resume to continue it or --overwrite to replace it, or choose another --output",
            )
        if used and not options.force:
            check_same(files.run, known)
        self._journals = [self._stack.enter_context(Journal(path)) for path in (files.rollouts, files.failures)]
        if options.overwrite:
            for journal in self._journals:
                journal.clear()
        return used

    def _write_run(self, files: Files, known: dict[str, Any], plan: CollectionPlan, *, goes_on: bool) -> None:
        how: dict[str, Any] = {"repeats": plan.repeats, "concurrency": plan.concurrency, "limit": self.options.limit}
        how |= {"max_attempts": plan.max_attempts, "input": self.rows.name}
        write_run(files.run, continued(files.run, how) if goes_on else describe(known, how))


class _ServerModel(Model):
    """The model of rollouts that an agent server plays: it is asked there."""

    connects = True

    def __init__(self, url: str) -> None:
        self.name = url


def collect(environment: Which | None = None, *, watch: Watcher | None = None, **options: Any) -> Collection:
    """Collect rollouts and return when all are done.

        result = ludus.collect("mcqa", model="local", limit=3)
        print(result.metrics["reward"]["mean"])

    Works in a script and, on a thread of its own, in a notebook. Keyword arguments are those of `Options`.
    """
    collection = Collection(environment, Options(**options))
    collector = collection.prepare(sink=collection.keep if collection.files is None else None)
    run_to_end(collection.run(collector, watch))
    return collection


async def stream(environment: Which | None = None, **options: Any) -> AsyncIterator[Rollout]:
    """Rollouts as they end, failed ones included; a slow reader slows the collection down.

    async for rollout in ludus.stream("mcqa", model="local"):
        print(rollout.reward)
    """
    collection = Collection(environment, Options(**options))
    outbox: asyncio.Queue[Rollout | None] = asyncio.Queue(maxsize=1)
    collector = collection.prepare(sink=outbox.put)

    async def produce() -> None:
        try:
            await collection.run(collector)
        finally:
            await outbox.put(None)

    producing = asyncio.create_task(produce())
    try:
        while (rollout := await outbox.get()) is not None:
            yield rollout
        await producing
    finally:
        producing.cancel()
        while not producing.done():
            while not outbox.empty():
                outbox.get_nowait()
            await asyncio.wait({producing}, timeout=0.05)
