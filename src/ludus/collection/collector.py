"""The collector: plays many rollouts at once in this process and appends each to a journal when it ends.

A fixed number of workers pull jobs from one iterator, so the number of rollouts in flight is bounded and the input is
not read ahead. A worker plays a job, records the rollout, and takes the next job. Cancelling the collector cancels the
workers, which close their sessions. Rollouts that wait for a group verdict occupy no worker (`groups.py`).
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
from ludus.collection.group_verifier import GroupVerifier
from ludus.collection.metrics import Metrics
from ludus.collection.player import Players
from ludus.collection.rows import Rows
from ludus.collection.watchdog import LoopWatchdog
from ludus.environment import Environment
from ludus.episode import Episode
from ludus.errors import REMEDIES, Failure, UserError
from ludus.model import Model
from ludus.rollout import Job, Rollout, rollout_id
from ludus.runtime.boundary import Deadline, is_cancelled
from ludus.runtime.processes import shared_pool
from ludus.runtime.threads import late_calls
from ludus.store.journal import Journal
from ludus.store.resume import read_rollouts
from ludus.task import Task, derive_seed, private

#: If the first 8 rollouts fail in the same way, such as a refused key, the run stops.
FIRST_FAILURES = 8

#: How long the end of a run waits for `close` calls that must wait for a hung thread.
LATE_CALLS_SECONDS = 30.0

EnvironmentOf = Callable[[dict[str, Any]], Environment]
Sink = Callable[[Rollout], Awaitable[None]]


@dataclass
class CollectionPlan:
    """The rows to collect, and the settings of the run.

    With `adaptive`, `concurrency` is the upper limit. With `tokens`, a rollout without token ids is masked. `by_group`
    says that an environment has `verify_group`, so a resumed run needs the journal offsets of recorded rollouts. If the
    rows are `Branches`, the rollouts continue recorded ones. `environments` are those of all rows.
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
    environments: list[Environment] = field(default_factory=list)


@dataclass
class Progress:
    """The current state of a run, for progress displays."""

    total: int = 0
    skipped: int = 0  # not played in this run: recorded, or out of attempts
    exhausted: int = 0  # the skipped rollouts that are out of attempts
    started: float = field(default_factory=time.perf_counter)
    last_change: float = field(default_factory=time.perf_counter)
    in_flight: set[Episode] = field(default_factory=set)
    output_tokens: int = 0
    finished: int = 0
    group_verifier: GroupVerifier | None = None

    def expect(self, total: int) -> None:
        """Set the number of rollouts. The journals may hold more: those of rows that are not in the input now."""
        self.total = total
        self.skipped = min(self.skipped, total)
        self.exhausted = min(self.exhausted, self.skipped)

    def waiting(self) -> Counter[str]:
        """The number of rollouts per stage. Stage `group`: waiting for the group's other rollouts or its verdict."""
        stages: Counter[str] = Counter(episode.stage for episode in self.in_flight)
        if self.group_verifier is not None and self.group_verifier.waiting:
            stages["group"] = self.group_verifier.waiting
        return stages


class Collector:
    """Plays the rollouts of a plan. Each goes to its journal, `rollouts` or `failures`, and to `sink`."""

    def __init__(
        self,
        plan: CollectionPlan,
        rollouts: Journal | None = None,
        failures: Journal | None = None,
        *,
        sink: Sink | None = None,
    ) -> None:
        self.plan = plan
        self.metrics = Metrics(plan.repeats, plan.environments)
        self.progress = Progress()
        self.watchdog = LoopWatchdog()
        self._rollouts, self._failures, self._sink = rollouts, failures, sink
        self._done: set[str] = set()  # rollout ids that are not played in this run
        self._attempts: Counter[str] = Counter()  # earlier attempts by rollout id
        self._recorded_offsets: dict[str, list[int]] = {}  # journal offsets by task id
        self._first_failures: list[Failure] = []
        self._branches = plan.rows if isinstance(plan.rows, Branches) else None
        self.gate = Gate(Adaptive(maximum=plan.concurrency)) if plan.adaptive else None

    def restore(self) -> None:
        """Resume from the journals: count and skip finished rollouts, retry failed ones with attempts left."""
        assert self._rollouts is not None, "a collection without files cannot be resumed"
        assert self._failures is not None
        plan, repeats = self.plan, 0
        for offset, rollout in read_rollouts(self._rollouts):
            if rollout.rollout_id in self._done:
                continue  # a duplicated line
            repeats = max(repeats, rollout.job.repeat + 1)
            self._done.add(rollout.rollout_id)
            self.metrics.add(rollout)
            if plan.by_group:
                self._recorded_offsets.setdefault(rollout.job.task_id, []).append(offset)
        failed, spent, seen = dict[str, Rollout](), Counter[str](), set[tuple[str, int]]()
        for _, rollout in read_rollouts(self._failures):
            repeats, name = max(repeats, rollout.job.repeat + 1), rollout.rollout_id
            if name not in self._done and (name, rollout.job.attempt) not in seen:
                seen.add((name, rollout.job.attempt))
                failed[name], self._attempts[name] = rollout, rollout.job.attempt
                # A dead server or a refused key is not the rollout's fault: it costs no attempt.
                spent[name] += rollout.error is None or rollout.error.kind not in REMEDIES
        if repeats > plan.repeats:
            cause = f"{self._rollouts.path} holds {repeats} repeats of a task, more than the {plan.repeats} asked for"
            raise UserError(cause, f"Add --repeats {repeats}, or choose another --output")
        for name, rollout in failed.items():
            if spent[name] >= plan.max_attempts:
                self._done.add(name)
                self.metrics.add(rollout)
                self.progress.exhausted += 1
        self.progress.skipped = len(self._done)

    async def run(self) -> None:
        """Play all rollouts that are not done. A failed rollout is recorded; an error of a journal is raised."""
        progress, plan = self.progress, self.plan
        progress.started = progress.last_change = time.perf_counter()
        plan.model.capture_tokens = plan.tokens
        if self.gate is not None:
            plan.model.observer = self.gate
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(self.watchdog)
            await stack.enter_async_context(plan.model)
            await stack.enter_async_context(shared_pool())
            players = Players(stack, plan.model, tokens=plan.tokens)
            verifier = GroupVerifier(players.opened, self._rollouts, self._record_group, tokens=plan.tokens)
            progress.group_verifier = verifier
            jobs = self._jobs(verifier)
            # `progress.skipped` is not subtracted: it may count rows that are not in the input now.
            count = max(1, min(plan.concurrency, progress.total))
            workers = [asyncio.create_task(self._work(jobs, players, verifier)) for _ in range(count)]
            finishing = [asyncio.create_task(_finish(workers, verifier)), asyncio.create_task(verifier.judge_expired())]
            tasks = [*workers, *finishing]
            try:
                await asyncio.gather(*finishing)
                self._stop_if_all_fail(min(FIRST_FAILURES, progress.finished))
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                verifier.close()
                if self._branches is not None:
                    await self._branches.close()
                await late_calls(LATE_CALLS_SECONDS)

    def _jobs(self, verifier: GroupVerifier) -> Iterator[Job]:
        plan, done, branches = self.plan, self._done, self._branches
        for task_id, row, first in plan.rows:
            environment = plan.environment_of(row)
            names = [rollout_id(task_id, repeat) for repeat in range(plan.repeats)]
            if environment.resources.by_group:
                missing, recorded = sum(name not in done for name in names), self._recorded_offsets.get(task_id)
                verifier.groups.expect(task_id, environment, size=plan.repeats, missing=missing, recorded=recorded)
            if branches is not None:
                branches.expect(task_id, sum(name not in done for name in names))
            unused: Task | None = first
            for repeat, name in enumerate(names):
                if name not in done:
                    seed, attempt = derive_seed(plan.seed, task_id, repeat), self._attempts.get(name, 0) + 1
                    task, unused = unused or environment.task(private(row)), None
                    yield Job(name, task_id, repeat, task, row, attempt, seed, environment.name)

    async def _work(self, jobs: Iterator[Job], players: Players, verifier: GroupVerifier) -> None:
        gate, in_process, groups = self.gate, not self.plan.model.connects, verifier.groups.by_task
        deadlines: dict[str, Deadline] = {}  # one per environment, reused for all of this worker's rollouts
        while True:
            if gate is not None:
                await gate.enter()
            try:
                if is_cancelled():  # the last rollout's code swallowed our cancel()
                    raise asyncio.CancelledError
                job = next(jobs, None)
                if job is None:
                    return
                rollout, mask = await self._play(job, players, deadlines)
                if job.task_id in groups:
                    await verifier.add(rollout, mask)
                else:
                    self._record(rollout)
                    if self._sink is not None:
                        await self._sink(rollout)
            finally:
                if gate is not None:
                    gate.leave()
            if in_process:
                await asyncio.sleep(0)  # yield to the event loop: a model in this process may never wait

    async def _play(self, job: Job, players: Players, deadlines: dict[str, Deadline]) -> tuple[Rollout, str | None]:
        """Play a job. Returns the rollout and the agent's reason to mask it, which a later group verdict needs."""
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
            self._stop_if_all_fail()

    async def _record_group(self, rollouts: list[Rollout]) -> None:
        """Record rollouts that were judged together, with one write: a group's members all fail, or none does."""
        for journal, failed in ((self._rollouts, False), (self._failures, True)):
            lines = [rollout.encode() for rollout in rollouts if (rollout.error is not None) is failed]
            if lines and journal is not None:
                journal.append(b"\n".join(lines))
        for rollout in rollouts:
            self._count(rollout)
        self._stop_if_all_fail()
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
        if rollout.error is not None and progress.finished <= FIRST_FAILURES:
            self._first_failures.append(rollout.error)

    def _stop_if_all_fail(self, expected: int = FIRST_FAILURES) -> None:
        """Stop the run if its first `expected` rollouts all failed with the same stage and kind, one of `REMEDIES`."""
        failures = self._first_failures
        kinds = {(each.stage, each.kind) for each in failures}
        if len(failures) >= expected and len(kinds) == 1 and failures[0].kind in REMEDIES:
            raise UserError(failures[0].cause, REMEDIES[failures[0].kind])


async def _finish(workers: list[asyncio.Task[None]], verifier: GroupVerifier) -> None:
    """Wait for the workers, then close the verifier: no group can get another rollout."""
    await asyncio.gather(*workers)
    verifier.close()
