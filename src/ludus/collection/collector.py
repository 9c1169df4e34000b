"""The collector: many rollouts at once in this process, each of them journaled the moment it ends.

A fixed number of workers pull jobs from one stream, so what is in flight is bounded and the input is never read
ahead. A worker plays a job, records it, and takes the next. Cancelling the collector cancels the workers, which
close their sessions first.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ludus.collection.adaptive import Adaptive, Gate
from ludus.collection.journal import Journal
from ludus.collection.metrics import Metrics
from ludus.collection.rows import Rows
from ludus.deadline import Deadline
from ludus.environment import Environment
from ludus.episode import Episode, play
from ludus.errors import UserError
from ludus.model import Model
from ludus.outcome import Failure
from ludus.processes import shared_pool
from ludus.receipt import Signer
from ludus.rollout import Job, Rollout, rollout_id
from ludus.task import derive_seed

#: Failures that every rollout would share, and what to do about them.
HOPELESS = {
    "http_401": "Check the key, which comes from the environment or env.yaml",
    "http_403": "Check what the key may do",
    "http_404": "Check the URL and the model's name",
    "refused": "Start the server, or correct its URL",
    "no_judge": "",
}
HOPELESS_COUNT = 8

EnvironmentOf = Callable[[dict[str, Any]], Environment]
Sink = Callable[[Rollout], Awaitable[None]]


@dataclass
class Plan:
    """What is to be collected, and how.

    With `adaptive`, `concurrency` is the most that may be tried; with `tokens`, a rollout without token ids is masked.
    """

    rows: Rows
    environment_of: EnvironmentOf
    model: Model
    repeats: int = 1
    concurrency: int = 64
    seed: int = 0
    max_attempts: int = 3
    tokens: bool = False
    adaptive: bool = False


@dataclass
class Progress:
    """What is going on right now; whoever shows it reads it when it likes."""

    total: int = 0
    skipped: int = 0
    started: float = field(default_factory=time.perf_counter)
    last_change: float = field(default_factory=time.perf_counter)
    in_flight: set[Episode] = field(default_factory=set)
    output_tokens: int = 0
    finished: int = 0

    def waiting(self) -> Counter[str]:
        """How many rollouts in flight are in which stage."""
        return Counter(episode.stage for episode in self.in_flight)


class Collector:
    """Plays a plan. `done` holds the ids that need not be played again, `attempts` how often others were tried."""

    def __init__(
        self,
        plan: Plan,
        rollouts: Journal | None = None,
        failures: Journal | None = None,
        *,
        sink: Sink | None = None,
    ) -> None:
        self.plan = plan
        self.metrics = Metrics(plan.repeats)
        self.progress = Progress()
        self._rollouts, self._failures, self._sink = rollouts, failures, sink
        self._done: set[str] = set()
        self._attempts: Counter[str] = Counter()
        self._first_failures: list[Failure] = []
        self._signers: dict[str, Signer] = {}
        self.gate = Gate(Adaptive(most=plan.concurrency)) if plan.adaptive else None

    def restore(self) -> None:
        """Take over what the journals hold: count it, skip what is finished, retry what failed within the budget."""
        assert self._rollouts is not None, "only a collection with files can be resumed"
        assert self._failures is not None
        for row in self._rollouts.read():
            self._done.add(row["rollout_id"])
            self.metrics.add(Rollout.from_row(row))
        last: dict[str, Rollout] = {}
        for row in self._failures.read():
            if row["rollout_id"] not in self._done:
                self._attempts[row["rollout_id"]] = row["attempt"]
                last[row["rollout_id"]] = Rollout.from_row(row)
        for name, attempts in self._attempts.items():
            if attempts >= self.plan.max_attempts:
                self._done.add(name)
                self.metrics.add(last[name])
        self.progress.skipped = len(self._done)

    async def run(self) -> None:
        """Play everything that is not done. Raises what a journal raises; a failed rollout raises nothing."""
        progress, plan = self.progress, self.plan
        progress.started = progress.last_change = time.perf_counter()
        plan.model.capture_tokens = plan.tokens
        if self.gate is not None:
            plan.model.observer = self.gate
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(plan.model)
            await stack.enter_async_context(shared_pool())
            sharing = _Sharing(stack)
            jobs = self._jobs()
            wanted = max(1, min(plan.concurrency, progress.total - progress.skipped))
            workers = [asyncio.create_task(self._work(jobs, sharing)) for _ in range(wanted)]
            try:
                await asyncio.gather(*workers)
            finally:
                for worker in workers:
                    worker.cancel()
                await asyncio.gather(*workers, return_exceptions=True)

    def _jobs(self) -> Iterator[Job]:
        plan = self.plan
        for task_id, row, task in plan.rows:
            environment = plan.environment_of(row).name
            for repeat in range(plan.repeats):
                name = rollout_id(task_id, repeat)
                if name not in self._done:
                    seed = derive_seed(plan.seed, task_id, repeat)
                    yield Job(name, task_id, repeat, task, row, self._attempts.get(name, 0) + 1, seed, environment)

    async def _work(self, jobs: Iterator[Job], sharing: _Sharing) -> None:
        gate, answers_at_once = self.gate, not self.plan.model.connects
        deadlines: dict[str, Deadline] = {}  # one timer for all rollouts of an environment that this worker plays
        while True:
            if gate is not None:
                await gate.enter()
            try:
                job = next(jobs, None)
                if job is None:
                    return
                rollout = await self._play(job, sharing, deadlines)
                self._record(rollout)
                if self._sink is not None:
                    await self._sink(rollout)
            finally:
                if gate is not None:
                    gate.leave()
            if answers_at_once:
                await asyncio.sleep(0)  # or this worker would never let anybody else have the loop

    async def _play(self, job: Job, sharing: _Sharing, deadlines: dict[str, Deadline]) -> Rollout:
        plan, in_flight = self.plan, self.progress.in_flight
        environment = plan.environment_of(job.row)
        opened = sharing.opened
        shared = opened[environment.name] if environment.name in opened else await sharing.open(environment)
        try:
            resources = environment.resources(environment.config, shared)
        except Exception as error:
            rollout = Rollout(job)
            rollout.fail(Failure.of(error, "open"))
            return rollout
        resources.seed = job.seed
        if environment.name not in deadlines:
            deadlines[environment.name] = environment.limits.deadline()
        episode = Episode(job, resources, plan.model, environment.limits, deadlines[environment.name])
        in_flight.add(episode)
        try:
            rollout = await play(episode, environment.agent)
        finally:
            in_flight.discard(episode)
        if plan.tokens:
            rollout.require_tokens()
        if rollout.verdict is not None and rollout.response is not None:
            rollout.receipt = self._signer(environment).sign(job.row, rollout.response.output)
        return rollout

    def _signer(self, environment: Environment) -> Signer:
        signer = self._signers.get(environment.name)
        if signer is None:
            signer = self._signers[environment.name] = Signer(environment)
        return signer

    def _record(self, rollout: Rollout) -> None:
        journal = self._rollouts if rollout.error is None else self._failures
        if journal is not None:
            journal.append(rollout.encode())
        self.metrics.add(rollout)
        progress = self.progress
        progress.finished += 1
        written = rollout.usage.get("output_tokens", 0)
        progress.output_tokens += written if isinstance(written, int) else 0
        progress.last_change = time.perf_counter()
        if rollout.error is not None and progress.finished <= HOPELESS_COUNT:
            self._give_up_if_hopeless(rollout.error)

    def _give_up_if_hopeless(self, failure: Failure) -> None:
        """Stop a run of which nothing can come, instead of failing every row of it in the same way."""
        self._first_failures.append(failure)
        kinds = {(each.stage, each.kind) for each in self._first_failures}
        expected = min(HOPELESS_COUNT, self.progress.total - self.progress.skipped)
        if len(self._first_failures) >= expected and len(kinds) == 1 and failure.kind in HOPELESS:
            raise UserError(failure.cause, HOPELESS[failure.kind])


class _Sharing:
    """What the rollouts of each environment share: opened once, when the first of them comes, closed with the stack."""

    def __init__(self, stack: contextlib.AsyncExitStack) -> None:
        self.opened: dict[str, Any] = {}
        self._stack = stack
        self._lock = asyncio.Lock()

    async def open(self, environment: Environment) -> Any:
        async with self._lock:
            if environment.name not in self.opened:
                self.opened[environment.name] = await self._open(environment)
        return self.opened[environment.name]

    async def _open(self, environment: Environment) -> Any:
        try:
            return await self._stack.enter_async_context(environment.resources.share(environment.config))
        except UserError:
            raise
        except Exception as error:
            cause = Failure.of(error, "open").cause
            raise UserError(f"environment {environment.name} cannot open what its rollouts share: {cause}") from error
