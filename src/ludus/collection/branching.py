"""Branches: rollouts that go on from the middle of recorded ones.

A branch point is a recorded rollout as it stood just before one of its model calls. A fresh session is brought there by
doing again what the record says was done, and copied for every continuation (`Resources.fork`); where a session cannot
be copied, each continuation gets one that was brought there for it alone. What was recorded is taken over as it stands:
the agent goes on from it and the verifier sees all of it, but only what is new counts as written by the model.

A session that answers differently this time is not where the record stood. That is the failure `drift` of every
continuation of the point, and no reward.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

from ludus.agents.recorded import NO_MODEL, begins, reach, sizes_of
from ludus.collection.player import Player
from ludus.collection.rows import Names, ReadTask, Rows, parse
from ludus.environment import Environment
from ludus.episode import Episode, Limits
from ludus.errors import Failure, UserError
from ludus.record import Row
from ludus.resources import Resources
from ludus.rollout import Job
from ludus.runtime.boundary import Deadline, step
from ludus.runtime.threads import awaited
from ludus.store.stored import Stored, bad_row
from ludus.task import Task, private


class Branches(Rows):
    """Recorded rollouts as tasks, of which the continuations are the repeats.

    A record that failed, or that made no more model calls, has no such point and is `left_out`.
    """

    def __init__(self, source: str | Path, turn: int, read_task: ReadTask, limit: int | None = None) -> None:
        path = Path(source)
        super().__init__(path / "rollouts.jsonl" if path.is_dir() else path, read_task, limit)
        if self._comes_once:
            raise UserError(f"{path} can be read only once", "Name a file: --branch RUN/rollouts.jsonl")
        self.turn = turn
        self.left_out = 0
        self._points: dict[str, Point] = {}

    def __iter__(self) -> Iterator[tuple[str, Row, Task]]:
        """The id of each point, the row of its task, and the task."""
        names = Names()
        for where, _, stored, turn in self._records():
            point = Point(stored, turn)
            name = names.new(f"{point.parent}.t{turn}")
            self._points[name] = point
            yield name, point.row, super()._task(where, private(point.row))

    def expect(self, name: str, missing: int) -> None:
        """Say how many continuations of a point are to be played."""
        self._points[name].waiting = missing
        if not missing:
            del self._points[name]

    def episode(self, job: Job, player: Player, deadline: Deadline) -> Episode:
        """A continuation, ready to be played."""
        return _Continuation(self, self._points[job.task_id], job, player, deadline)

    async def session(self, name: str, player: Player) -> Resources:
        """A session that stands at a point, for one continuation."""
        point = self._points[name]
        try:
            return await point.session(player)
        finally:
            if point.is_done:
                self._points.pop(name, None)

    async def close(self) -> None:
        """Close the sessions that nobody took, where the run was stopped."""
        for point in self._points.values():
            await point.close()

    def _lines(self) -> Iterator[tuple[str, bytes]]:
        return ((where, line) for where, line, _, _ in self._records())

    def _records(self) -> Iterator[tuple[str, bytes, Stored, int]]:
        """The lines that hold a record with such a point, and how many of its model calls come before that."""
        assert isinstance(self.source, Path)
        self.left_out = used = 0
        for where, line in self._read(self.source):
            stored = Stored(parse(where, line), 0)
            try:
                turn = _place(stored, self.turn)
            except Failure as failure:
                hint = "Name the rollouts of a collection: --branch RUN/rollouts.jsonl"
                raise UserError(f"{where}: {failure.cause}", hint) from failure
            if turn is None:
                self.left_out += 1
                continue
            yield where, line, stored, turn
            used += 1
            if used == self._limit:
                return
        if not used and self.left_out:
            cause = f"{self.name}: none of its rollouts made a model call after turn {self.turn}"
            raise UserError(cause, "Choose an earlier one: --turn K")

    def _task(self, where: str, row: Row) -> Task:
        return super()._task(where, Stored(row, 0).task)


class Point:
    """A recorded rollout as it stood after `turn` of its model calls, and the sessions that stand there."""

    def __init__(self, stored: Stored, turn: int) -> None:
        self.parent, self.turn, self.seed, self.row = stored.name, turn, stored.seed, stored.task
        self.before = self._response = stored.response()  #: what was recorded up to here, once a session stands here
        self._model_calls = stored.row["model_calls"]
        self.calls = [{"items": call["items"], "given": True} for call in self._model_calls[:turn]]
        self.waiting = 0  #: how many continuations still want a session
        self._original: Resources | None = None
        self._failure: Failure | None = None
        self._can_be_copied = True
        self._strays: list[asyncio.Future[Resources]] = []
        self._limits = Limits()
        self._one_at_a_time = asyncio.Lock()

    @property
    def is_done(self) -> bool:
        """Whether nobody wants a session any more, and none is left."""
        return not self.waiting and self._original is None and not self._strays

    async def session(self, player: Player) -> Resources:
        """A session that stands here: a copy of the original, or the original itself for the last who wants one."""
        self._limits = player.environment.limits
        try:
            async with self._one_at_a_time:
                original = await self._reached(player)
                if self.waiting == 1:
                    self._original = None
                    return original
                twin = await self._copy_of(original) if self._can_be_copied else None
                if twin is not None:
                    return twin
        finally:
            self.waiting -= 1
        return await self._reach(player)

    async def close(self) -> None:
        """Close what nobody took."""
        left: list[Resources | asyncio.Future[Resources]] = [*self._strays]
        if self._original is not None:
            left.append(self._original)
        await asyncio.gather(*map(self._close, left))

    async def _close(self, session: Resources | asyncio.Future[Resources]) -> None:
        try:
            seconds = self._limits.close
            ready = session if isinstance(session, Resources) else await step("close", seconds, session)
            await step("close", seconds, awaited(ready.close))
        except Failure:  # the run is over: there is no rollout left to record it in
            return

    async def _reached(self, player: Player) -> Resources:
        """The original, brought here when it is first asked for."""
        if self._failure is not None:
            raise self._failure
        if self._original is None:
            try:
                self._original = await self._reach(player)
            except Failure as failure:
                self._failure = failure
                raise
        return self._original

    async def _reach(self, player: Player) -> Resources:
        environment = player.environment
        task = environment.task(private(self.row))
        job = Job(self.parent, self.parent, 0, task, self.row, seed=self.seed, environment=environment.name)
        episode = Episode(job, environment.session(player.shared, self.seed), NO_MODEL, environment.limits)
        session, self.before = await reach(episode, self._response, self._model_calls, self.turn)
        return session

    async def _copy_of(self, original: Resources) -> Resources | None:
        """A copy of the session; None where it is of a kind that cannot be copied."""
        copying = asyncio.ensure_future(awaited(original.fork))
        try:
            twin: Resources = await asyncio.shield(copying)
        except asyncio.CancelledError:
            self._strays.append(copying)  # it goes on by itself, and what comes of it has to be closed
            raise
        except Failure as failure:
            if failure.kind != "cannot_fork":
                raise
            self._can_be_copied = False
            return None
        if type(twin) is not type(original) or twin is original:
            raise Failure("bad_fork", f"{type(original).__name__}.fork() must return another session, not {twin!r:.80}")
        twin.seed = original.seed
        return twin


class _Continuation(Episode):
    """A rollout that begins where another one stood."""

    __slots__ = ("_branches", "_player", "_point")

    def __init__(self, branches: Branches, point: Point, job: Job, player: Player, deadline: Deadline) -> None:
        nothing_to_close = Resources()
        super().__init__(job, nothing_to_close, player.model, player.environment.limits, deadline)
        self._branches, self._point, self._player = branches, point, player
        job.origin = {"parent": point.parent, "branch_turn": point.turn, "session_seed": point.seed}

    async def open(self) -> None:
        """Take a session that stands at the point, and what was recorded up to there."""
        coming = self._branches.session(self.job.task_id, self._player)
        self.resources = await self.step("open", self.limits.rollout, coming)
        self.adopt(self._point.before, self._point.calls, {})
        self.offer_tools()


def check_agents(environments: list[Environment]) -> None:
    """Refuse agents that cannot go on from the middle: whoever wrote the `act` of one must have said that it can."""
    for environment in environments:
        kinds = type(environment.agent).__mro__
        author = next(kind for kind in kinds if "act" in vars(kind))
        if not vars(author).get("continues"):
            cause = f"{environment.name}: its agent, {kinds[0].__name__}, cannot go on from the middle of a rollout"
            raise UserError(cause, "Of the agents here, simple, single_turn, gymnasium and conversation can")


def _place(stored: Stored, turn: int) -> int | None:
    """How many model calls of a record come before the point; None where it has no such point."""
    if not stored.is_record:
        raise bad_row("it is not a recorded rollout")
    calls = stored.row.get("model_calls")
    if not calls or stored.row["outcome"] == "failed":
        return None
    sizes = sizes_of(calls)
    if sizes is None or min(sizes) < 0:
        raise bad_row("its model_calls do not say how many items each of them wrote")
    place = turn if turn >= 0 else len(calls) + turn
    if not 0 <= place < len(calls):
        return None
    output = stored.response().output
    if not 0 <= begins(output, calls, place) <= len(output):
        raise bad_row("its model_calls do not fit its response")
    return place
