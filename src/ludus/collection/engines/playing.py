"""Plays many rollouts at once on one event loop: the engine of this process, and the core of a worker.

A fixed number of asyncio tasks pull jobs from one source, so the number of rollouts in flight is bounded and the input
is not read ahead. Each plays a job, records the rollout, and takes the next job. A cancel cancels all of them, and they
close their sessions. Rollouts that wait for a group verdict occupy none of them (`groups.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ludus.collection.adaptive import Adaptive, Gate
from ludus.collection.branching import BranchPoints
from ludus.collection.checkpoints import ResumingAgent, SavedTurns, TurnKeeper, TurnWriter, why_not_saved
from ludus.collection.engines.crew import Crew
from ludus.collection.engines.jobs import FinishedRollouts, JobSource
from ludus.collection.group_verifier import GroupVerifier
from ludus.collection.options import Options
from ludus.collection.plan import TaskWork
from ludus.collection.player import Players
from ludus.collection.progress import Progress
from ludus.collection.saved_calls import SavedCalls
from ludus.collection.stragglers import STALE_SECONDS, Stragglers, stale
from ludus.collection.watchdog import LoopWatchdog
from ludus.environment import Environment
from ludus.episode import Acting, Episode
from ludus.errors import Failure
from ludus.model import Model
from ludus.rollout import Job, Rollout
from ludus.runtime.deadline import Deadline
from ludus.runtime.processes import shared_pool
from ludus.runtime.threads import late_calls

#: How long the end of a run waits for `close` calls that wait for a hung thread.
LATE_CALLS_SECONDS = 30.0

#: How many rollouts are in flight at first with `--concurrency auto`.
ADAPTIVE_START = 8

#: A rollout, and the agent's reason to mask it, which a later group verdict needs.
Played = tuple[Rollout, str | None]


@dataclass
class PlaySettings:
    """How one process plays rollouts: the options, its model, and its share of the concurrency. With `auto`, the limit
    starts at `adaptive_start`, up to `concurrency`."""

    options: Options
    model: Model
    concurrency: int
    adaptive_start: int = ADAPTIVE_START


class Playing:
    """Plays work on the running event loop, from `async with` to its end.

    `results` takes the finished rollouts, `turns` each of their turns. `progress` shows the ones in flight.

    async with Playing(settings, results, progress, watchdog) as playing:
        await playing.play(AllJobs(playing.jobs(work)), total)
    """

    def __init__(
        self,
        settings: PlaySettings,
        results: FinishedRollouts,
        progress: Progress,
        watchdog: LoopWatchdog,
        turns: TurnWriter | None = None,
    ) -> None:
        self._settings, self._results, self._progress, self._watchdog = settings, results, progress, watchdog
        options = settings.options
        self._repeats, self._seed, self._stop = options.play.repeats, options.play.seed, options.stop
        self._turns = TurnKeeper(turns) if turns is not None else None
        self._saves_turns: dict[str, bool] = {}  # by the name of an environment
        self._by_group: dict[str, bool] = {}
        start = Adaptive(settings.adaptive_start, maximum=settings.concurrency)
        self.gate = Gate(start) if options.engine.is_adaptive else None
        self._environments: dict[str, Environment] = {}
        self._branches = BranchPoints()
        self._branching = False
        self._running: dict[str, asyncio.Task[None]] = {}  # by rollout id
        self._withdrawn: dict[str, Failure | None] = {}
        self._stragglers = Stragglers(self._stop, self.withdraw) if self._stop.by_task else None
        self._cancelled: dict[str, Episode] = {}  # withdrawn, by rollout id
        self._crew: Crew | None = None  # while rollouts are played
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Playing:
        """Start the model. An environment's shared object is opened with its first rollout."""
        settings, results, enter = self._settings, self._results, self._stack.enter_async_context
        options, model = settings.options, settings.model
        model.capture_tokens = tokens = options.play.tokens
        if (gate := self.gate) is not None:
            model.observer = gate
            self._progress.adaptive_limit = lambda: gate.adaptive.limit
        async with contextlib.AsyncExitStack() as on_error:
            on_error.push_async_exit(self._stack)
            await enter(self._watchdog)
            await enter(model)
            await enter(shared_pool())
            self._players = Players(self._stack, model, tokens=tokens, times_steps=options.telemetry.otel)
            opened = self._players.opened
            self.verifier = GroupVerifier(opened, results.read_recorded, results.add_group, tokens=tokens)
            self._progress.in_groups = lambda: self.verifier.waiting
            on_error.pop_all()
        return self

    async def __aexit__(self, *exc: Any) -> None:
        """Write the turns of rollouts that were interrupted, close what the sessions shared, and stop the model."""
        if self._turns is not None:
            self._turns.write()
        await self._stack.__aexit__(*exc)

    def jobs(self, work: TaskWork) -> Iterator[Job]:
        """The jobs of a task. From the first one on, its group and its branch point are expected here."""
        environment, missing = self._known(work.environment), len(work.repeats)
        if self._by_group[environment.name]:
            self.verifier.groups.expect(
                work.task_id, environment, size=self._repeats, missing=missing, recorded=work.recorded
            )
        if self._stragglers is not None:
            self._stragglers.expect(work.task_id, work.repeats, work.good)
        if work.point is not None and missing:
            self._branching = True
            self._branches.add(work.task_id, work.point, missing)
        return work.jobs(self._seed)

    def _known(self, environment: Environment) -> Environment:
        """The environment, after its facts for playing are computed once."""
        name = environment.name
        if self._environments.get(name) is not environment:
            self._saves_turns[name] = self._turns is not None and why_not_saved(environment) is None
            self._environments[name] = environment
            self._by_group[name] = environment.resources.by_group
        return environment

    async def play(self, source: JobSource, count: int) -> None:
        """Play all jobs of a source, at most `count` at once."""
        self._crew = crew = Crew(lambda: self._work(source))
        crew.grow(count)
        finishing = asyncio.create_task(self._finish(crew))
        expiring = asyncio.create_task(self.verifier.judge_expired())
        others = [finishing, expiring]
        if self._stop.max_staleness is not None:
            others.append(asyncio.create_task(self._end_stale()))
        if self.gate is not None:
            others.append(asyncio.create_task(self.gate.follow(self._settings.model)))
        try:
            await asyncio.gather(finishing, expiring)
        finally:
            crew.closed = True
            tasks = [*crew.tasks, *others]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self.verifier.close()
            await self._branches.close()
            await late_calls(LATE_CALLS_SECONDS)

    def raise_concurrency(self, count: int) -> None:
        """Play up to `count` rollouts at once, if that is more than now."""
        if self._crew is not None:
            self._crew.grow(count)
        if self.gate is not None:
            self.gate.raise_maximum(count)

    async def _finish(self, crew: Crew) -> None:
        """Wait for the workers, then close the verifier: no group can get another rollout."""
        await crew.done
        self.verifier.close()

    async def _work(self, source: JobSource) -> None:
        gate, verifier, groups = self.gate, self.verifier, self.verifier.groups.by_task
        in_process, add = not self._settings.model.connects, self._results.add
        deadlines: dict[str, Deadline] = {}  # one per environment, reused for all of this task's rollouts
        task = asyncio.current_task()
        assert task is not None
        while True:
            if gate is not None:
                await gate.enter()
            try:
                if task.cancelling():  # the last rollout's code swallowed our cancel()
                    raise asyncio.CancelledError
                job = source.take()
                if job is not None:
                    played = await self._play_unless_withdrawn(job, deadlines, task)
                    if played is None:
                        continue
                    rollout, mask = played
                    if self._stragglers is not None:
                        self._stragglers.ended(rollout)
                    if job.task_id in groups:
                        await verifier.add(rollout, mask)
                    elif (waits := add(rollout)) is not None:
                        await waits
                elif source.ended:
                    return
            finally:
                if gate is not None:
                    gate.leave()
            if job is None:
                await source.wait()
            elif in_process:
                await asyncio.sleep(0)  # yield to the event loop: a model in this process may never wait

    def withdraw(self, rollout_id: str, why: Failure | None = None) -> bool:
        """Cancel a rollout in flight. Its session is closed. It is recorded as failed if there is a reason `why`, and
        not at all without one. False if it is not in flight."""
        task = self._running.get(rollout_id)
        if task is None or rollout_id in self._withdrawn:
            return False
        self._withdrawn[rollout_id] = why
        task.cancel()
        return True

    def end_stale(self) -> None:
        """End the rollouts in flight whose policy version is too old."""
        limit = self._stop.max_staleness
        if limit is not None:
            for name, why in stale(self._progress.in_flight, limit, self._settings.model.policy_version):
                self.withdraw(name, why)

    async def _end_stale(self) -> None:
        while True:
            await asyncio.sleep(STALE_SECONDS)
            self.end_stale()

    async def _play_unless_withdrawn(
        self, job: Job, deadlines: dict[str, Deadline], task: asyncio.Task[Any]
    ) -> Played | None:
        name = job.rollout_id
        if self._stragglers is not None and (why := self._stragglers.start(job)) is not None:
            return _ended(job, why)
        self._running[name] = task
        try:
            played = await self._play(job, deadlines)
        except asyncio.CancelledError:
            if name not in self._withdrawn or task.uncancel():
                raise  # the whole run is cancelled
            return _ended(job, self._withdrawn[name], self._cancelled.pop(name, None))
        else:
            if name in self._withdrawn:  # its code swallowed our cancel()
                task.uncancel()
                return _ended(job, self._withdrawn[name])
            return played
        finally:
            del self._running[name]
            self._withdrawn.pop(name, None)
            self._cancelled.pop(name, None)

    async def _play(self, job: Job, deadlines: dict[str, Deadline]) -> Played:
        environment, players = self._environments[job.environment], self._players
        player = players.opened.get(environment.name) or await players.open(environment)
        deadline = deadlines.get(environment.name)
        if deadline is None:
            deadline = deadlines[environment.name] = environment.limits.deadline()
        try:
            episode = (
                self._branches.episode(job, player, deadline) if self._branching else player.episode(job, deadline)
            )
        except Failure as failure:
            rollout = Rollout(job)
            rollout.fail(failure)
            return rollout, None
        agent: Acting = player.agent
        if self._turns is not None and self._saves_turns[environment.name]:
            if environment.agent.repeats_calls:
                saved = SavedCalls(self._turns, job, self._progress)
                episode.recorder.turns = episode.recorder.kept_calls = saved
            else:
                episode.recorder.turns = SavedTurns(self._turns, episode)
            if job.turns and not environment.agent.repeats_calls:
                agent = ResumingAgent(agent, job.turns, player, self._progress)
        in_flight = self._progress.in_flight
        in_flight.add(episode)
        try:
            played = await player.play(episode, agent)
        except asyncio.CancelledError:
            self._cancelled[job.rollout_id] = episode
            raise
        finally:
            in_flight.discard(episode)
        turns = episode.recorder.turns
        if self._turns is not None and turns is not None:
            if self._by_group[environment.name]:
                self._turns.write()  # it may wait long for the others of its group
            else:
                turns.end()
            # A reference cycle would keep the whole rollout alive until the next garbage collection.
            episode.recorder.turns = None
        return played, episode.mask


def _ended(job: Job, why: Failure | None, episode: Episode | None = None) -> Played | None:
    """The record of a rollout that was ended early, with its turns so far; None without a reason."""
    if why is None:
        return None
    rollout = Rollout(job)
    if episode is not None:
        recorder = episode.recorder
        if recorder.turns is not None:
            recorder.turns.end()
        rollout = recorder.rollout(job)
        rollout.response = episode.response
        recorder.end(rollout)
    rollout.fail(why)
    return rollout, None
