"""The collector: many rollouts at once in this process, each of them journaled the moment it ends.

A fixed number of workers pull jobs from one stream, so what is in flight is bounded and the input is never read
ahead. A worker plays a job, records it, and takes the next. Cancelling the collector cancels the workers, which
close their sessions first. Rollouts that are judged together wait for each other outside the workers (`jury.py`).
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
from ludus.collection.branching import Branches
from ludus.collection.jury import Jury
from ludus.collection.metrics import Metrics
from ludus.collection.player import Players
from ludus.collection.rows import Rows
from ludus.environment import Environment
from ludus.episode import Episode
from ludus.errors import REMEDIES, Failure, UserError
from ludus.model import Model
from ludus.rollout import Job, Rollout, rollout_id
from ludus.runtime.boundary import Deadline, is_cancelled
from ludus.runtime.processes import shared_pool
from ludus.runtime.threads import late_calls
from ludus.store.journal import Journal
from ludus.store.resume import recorded
from ludus.task import Task, derive_seed, private

#: How many first failures of one kind end a run.
HOPELESS_COUNT = 8

#: How long the end of a run waits for sessions that could only be closed late.
LATE_SECONDS = 30.0

EnvironmentOf = Callable[[dict[str, Any]], Environment]
Sink = Callable[[Rollout], Awaitable[None]]


@dataclass
class CollectionPlan:
    """What is to be collected, and how.

    With `adaptive`, `concurrency` is the most that may be tried; with `tokens`, a rollout without token ids is masked.
    `by_group` says that some of the environments judge groups, so that a resumed run must know where their rows are.
    Rows that are `Branches` are rollouts to go on with.
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
    by_group: bool = False


@dataclass
class Progress:
    """What is going on right now; whoever shows it reads it when it likes."""

    total: int = 0
    skipped: int = 0  # not played again: recorded, or tried as often as it may be
    exhausted: int = 0  # those of them that were tried as often as they may be
    started: float = field(default_factory=time.perf_counter)
    last_change: float = field(default_factory=time.perf_counter)
    in_flight: set[Episode] = field(default_factory=set)
    output_tokens: int = 0
    finished: int = 0
    jury: Jury | None = None

    def expect(self, total: int) -> None:
        """Say how many rollouts there are to be. Of what is recorded, other rows than these may hold the rest."""
        self.total = total
        self.skipped = min(self.skipped, total)
        self.exhausted = min(self.exhausted, self.skipped)

    def waiting(self) -> Counter[str]:
        """How many rollouts are in which stage; `group` are those that wait for, or with, others of their task."""
        stages: Counter[str] = Counter(episode.stage for episode in self.in_flight)
        if self.jury is not None and self.jury.waiting:
            stages["group"] = self.jury.waiting
        return stages


class Collector:
    """Plays a plan. `done` holds the ids that need not be played again, `attempts` how often others were tried."""

    def __init__(
        self,
        plan: CollectionPlan,
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
        self._places: dict[str, list[int]] = {}
        self._first_failures: list[Failure] = []
        self._branches = plan.rows if isinstance(plan.rows, Branches) else None
        self.gate = Gate(Adaptive(most=plan.concurrency)) if plan.adaptive else None

    def restore(self) -> None:
        """Take over what the journals hold: count it, skip what is finished, retry what failed within the budget."""
        assert self._rollouts is not None, "only a collection with files can be resumed"
        assert self._failures is not None
        plan, repeats = self.plan, 0
        for place, rollout in recorded(self._rollouts):
            repeats = max(repeats, rollout.job.repeat + 1)
            self._done.add(rollout.rollout_id)
            self.metrics.add(rollout)
            if plan.by_group:
                self._places.setdefault(rollout.job.task_id, []).append(place)
        last, spent = dict[str, Rollout](), Counter[str]()
        for _, rollout in recorded(self._failures):
            repeats, name = max(repeats, rollout.job.repeat + 1), rollout.rollout_id
            if name not in self._done:
                last[name], self._attempts[name] = rollout, rollout.job.attempt
                # A dead server or a refused key is nothing that the rollout did: it costs none of its attempts.
                spent[name] += rollout.error is None or rollout.error.kind not in REMEDIES
        if repeats > plan.repeats:
            what = f"{self._rollouts.path} holds {repeats} repeats of a task, more than the {plan.repeats} asked for"
            raise UserError(what, f"Add --repeats {repeats}, or choose another --output")
        for name, rollout in last.items():
            if spent[name] >= plan.max_attempts:
                self._done.add(name)
                self.metrics.add(rollout)
                self.progress.exhausted += 1
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
            players = Players(stack, plan.model, tokens=plan.tokens)
            jury = Jury(players.opened, self._rollouts, self._keep, tokens=plan.tokens)
            progress.jury = jury
            jobs = self._jobs(jury)
            # Not less what is recorded: that may be of other rows than these. Who finds nothing to do ends at once.
            wanted = max(1, min(plan.concurrency, progress.total))
            workers = [asyncio.create_task(self._work(jobs, players, jury)) for _ in range(wanted)]
            tasks = [*workers, asyncio.create_task(_all_of(workers, jury)), asyncio.create_task(jury.judge_expired())]
            try:
                await asyncio.gather(*tasks[-2:])
                self._give_up_if_hopeless(min(HOPELESS_COUNT, progress.finished))
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                jury.close()
                if self._branches is not None:
                    await self._branches.close()
                await late_calls(LATE_SECONDS)

    def _jobs(self, jury: Jury) -> Iterator[Job]:
        plan, done, branches = self.plan, self._done, self._branches
        for task_id, row, first in plan.rows:
            environment = plan.environment_of(row)
            names = [rollout_id(task_id, repeat) for repeat in range(plan.repeats)]
            if environment.resources.by_group:
                missing, recorded = sum(name not in done for name in names), self._places.get(task_id)
                jury.groups.expect(task_id, environment, wanted=plan.repeats, missing=missing, recorded=recorded)
            if branches is not None:
                branches.expect(task_id, sum(name not in done for name in names))
            own: Task | None = first
            for repeat, name in enumerate(names):
                if name not in done:
                    seed, attempt = derive_seed(plan.seed, task_id, repeat), self._attempts.get(name, 0) + 1
                    task, own = own or environment.task(private(row)), None
                    yield Job(name, task_id, repeat, task, row, attempt, seed, environment.name)

    async def _work(self, jobs: Iterator[Job], players: Players, jury: Jury) -> None:
        gate, answers_at_once, waiting = self.gate, not self.plan.model.connects, jury.groups.open
        deadlines: dict[str, Deadline] = {}  # one timer for all rollouts of an environment that this worker plays
        while True:
            if gate is not None:
                await gate.enter()
            try:
                if is_cancelled():  # and the last rollout's code kept that to itself
                    raise asyncio.CancelledError
                job = next(jobs, None)
                if job is None:
                    return
                rollout, mask = await self._play(job, players, deadlines)
                if job.task_id in waiting:
                    await jury.take(rollout, mask)
                else:
                    self._record(rollout)
                    if self._sink is not None:
                        await self._sink(rollout)
            finally:
                if gate is not None:
                    gate.leave()
            if answers_at_once:
                await asyncio.sleep(0)  # or this worker would never let anybody else have the loop

    async def _play(self, job: Job, players: Players, deadlines: dict[str, Deadline]) -> tuple[Rollout, str | None]:
        """The rollout of a job, and the agent's reason to mask it, for a rollout that is judged later."""
        environment = self.plan.environment_of(job.row)
        player = players.opened.get(environment.name) or await players.open(environment)
        deadline = deadlines.get(environment.name)
        if deadline is None:
            deadline = deadlines[environment.name] = environment.limits.deadline()
        try:
            episode = (
                player.episode(job, deadline)
                if self._branches is None
                else self._branches.episode(job, player, deadline)
            )
        except Failure as failure:
            rollout = Rollout(job)
            rollout.fail(failure)
            return rollout, None
        in_flight = self.progress.in_flight
        in_flight.add(episode)
        try:
            return await player.play(episode), episode.mask
        finally:
            in_flight.discard(episode)

    def _record(self, rollout: Rollout) -> None:
        journal = self._rollouts if rollout.error is None else self._failures
        if journal is not None:
            journal.append(rollout.encode())
        self._count(rollout)
        if rollout.error is not None:
            self._give_up_if_hopeless()

    async def _keep(self, rollouts: list[Rollout]) -> None:
        """Record rollouts that were judged together: all of them with one write, or none."""
        for journal, failed in ((self._rollouts, False), (self._failures, True)):
            lines = [rollout.encode() for rollout in rollouts if (rollout.error is not None) is failed]
            if lines and journal is not None:
                journal.append(b"\n".join(lines))
        for rollout in rollouts:
            self._count(rollout)
        self._give_up_if_hopeless()
        if self._sink is not None:
            for rollout in rollouts:
                await self._sink(rollout)

    def _count(self, rollout: Rollout) -> None:
        self.metrics.add(rollout)
        progress = self.progress
        progress.finished += 1
        written = rollout.usage.get("output_tokens", 0)
        progress.output_tokens += written if isinstance(written, int) else 0
        progress.last_change = time.perf_counter()
        if rollout.error is not None and progress.finished <= HOPELESS_COUNT:
            self._first_failures.append(rollout.error)

    def _give_up_if_hopeless(self, expected: int = HOPELESS_COUNT) -> None:
        """Stop a run of which nothing can come, instead of failing every row of it in the same way.

        That is so when nothing but such failures came first, `expected` times or more.
        """
        failures = self._first_failures
        kinds = {(each.stage, each.kind) for each in failures}
        if len(failures) >= expected and len(kinds) == 1 and failures[0].kind in REMEDIES:
            raise UserError(failures[0].cause, REMEDIES[failures[0].kind])


async def _all_of(workers: list[asyncio.Task[None]], jury: Jury) -> None:
    """Wait for the workers, after whom no group can be waiting for anybody."""
    await asyncio.gather(*workers)
    jury.close()
