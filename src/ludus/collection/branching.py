"""Branches: rollouts that continue recorded rollouts from one of their model calls.

A branch point is a recorded rollout that is cut before one of its model calls. The recorded calls are replayed in a new
session, which is copied for every continuation with `Resources.fork`. A session that cannot be copied is replayed for
each continuation. The continuation starts with the recorded trajectory: agent and verifier see all of it, but only new
items count as written by the model.

If a tool returns another output than recorded, every continuation of the branch point fails with kind `drift`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

from ludus.agent import can_continue
from ludus.agents.recorded import NO_MODEL, reach
from ludus.agents.recorded_calls import call_start
from ludus.collection.player import Player
from ludus.data.row_checks import ReadTask, parse_row
from ludus.data.rows import Rows, UniqueIds
from ludus.data.shards import Split
from ludus.environment import Environment
from ludus.episode import Episode
from ludus.errors import Failure, UserError
from ludus.limits import Limits
from ludus.outcome import UNREWARDED
from ludus.record import Row
from ludus.resources import Resources
from ludus.rollout import Job
from ludus.runtime.boundary import step
from ludus.runtime.deadline import Deadline
from ludus.runtime.threads import awaited
from ludus.store.files import Files
from ludus.store.lines import StoredLines
from ludus.store.model_calls import sizes_of, without_tokens
from ludus.store.parsing import bad_row
from ludus.store.stored import StoredRow
from ludus.task import Task, private


class Branches(Rows):
    """The tasks of recorded rollouts. The repeats of a task are the continuations of its rollout.

    `left_out` counts the rollouts without a branch point: they failed or have no model call after `turn`.
    """

    def __init__(self, source: str | Path, turn: int, read_task: ReadTask, limit: int | None = None) -> None:
        path = Path(source)
        super().__init__(Files.of(path).rollouts, read_task, limit)
        if self._one_pass:
            raise UserError(f"{path} can be read only once", "Name a file: --branch RUN/rollouts.jsonl")
        self.turn = turn
        self.left_out = 0

    def __iter__(self) -> Iterator[tuple[str, Row, Task]]:
        """The id of each branch point, the row of its task, and the task."""
        return ((task_id, row, task) for task_id, row, task, _ in self.points())

    def points(self) -> Iterator[tuple[str, Row, Task, BranchPoint]]:
        """The same, with the branch point."""
        for where, task_id, _, stored, turn in self._own():
            point = BranchPoint(stored, turn)
            yield task_id, point.row, super()._task(where, private(point.row)), point

    def encoded(self) -> Iterator[tuple[str, Row, bytes]]:
        """The id of each branch point, the row of its task, and the line of the recorded rollout."""
        return ((task_id, stored.task, line) for _, task_id, line, stored, _ in self._own())

    def _own(self) -> Iterator[tuple[str, str, bytes, StoredRow, int]]:
        """The records of this shard, with the ids of their tasks."""
        ids, split = UniqueIds(), Split(self.shard)
        for where, line, stored, turn in self._records():
            id = _branch_id(stored, turn)
            task_id = ids.assign(id)
            if split.takes(id):
                yield where, task_id, line, stored, turn

    def _lines(self) -> Iterator[tuple[str, bytes]]:
        return ((where, line) for where, line, _, _ in self._records())

    def _records(self) -> Iterator[tuple[str, bytes, StoredRow, int]]:
        """The lines with a branch point, and the number of model calls before it."""
        self.left_out = used = 0
        for where, line in self._recorded_lines():
            stored = StoredRow(parse_row(where, line), 0)
            try:
                turn = calls_before(stored, self.turn)
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
            raise UserError(cause, "Choose an earlier turn: --turn K")

    def _recorded_lines(self) -> Iterator[tuple[str, bytes]]:
        """The lines that count, each with its place."""
        assert isinstance(self.source, Path)
        with StoredLines(self.source) as lines:
            for number, line in lines.counted():
                yield f"{self.source}:{number}", line

    def _id(self, where: str, row: Row) -> str:
        stored = StoredRow(row, 0)
        turn = calls_before(stored, self.turn)
        assert turn is not None, f"{where}: only rows with a branch point are surveyed"
        return _branch_id(stored, turn)

    def _task(self, where: str, row: Row) -> Task:
        return super()._task(where, StoredRow(row, 0).task)


class BranchPoints:
    """The branch points that are being played, by task id."""

    def __init__(self) -> None:
        self._points: dict[str, BranchPoint] = {}

    def add(self, task_id: str, point: BranchPoint, continuations: int) -> None:
        """Add a branch point with the number of its continuations."""
        point.sessions_needed = continuations
        self._points[task_id] = point

    def episode(self, job: Job, player: Player, deadline: Deadline) -> Episode:
        """The episode of a continuation."""
        return _Continuation(self, self._points[job.task_id], job, player, deadline)

    async def session(self, task_id: str, player: Player) -> Resources:
        """A session that was replayed up to the branch point, for one continuation."""
        point = self._points[task_id]
        try:
            return await point.session(player)
        finally:
            if point.is_done:
                self._points.pop(task_id, None)

    async def close(self) -> None:
        """Close the sessions that were not used because the run was stopped."""
        for point in self._points.values():
            await point.close()


class BranchPoint:
    """A recorded rollout that is cut after `turn` model calls, and the sessions that were replayed up to there."""

    def __init__(self, stored: StoredRow, turn: int) -> None:
        self.parent, self.turn, self.seed, self.row = stored.name, turn, stored.seed, stored.task
        self.trajectory = self._response = stored.response()  #: cut at the branch point after the first replay
        self._model_calls = stored.row["model_calls"]
        self.calls = [without_tokens(call) | {"given": True} for call in self._model_calls[:turn]]
        self.sessions_needed = 0  #: the number of continuations that have no session yet
        self._original: Resources | None = None
        self._failure: Failure | None = None
        self._can_fork = True
        self._orphaned_forks: list[asyncio.Future[Resources]] = []
        self._limits = Limits()
        self._lock = asyncio.Lock()

    @classmethod
    def of_line(cls, line: bytes, turn: int) -> BranchPoint:
        """The branch point of a recorded rollout, which `Branches` has checked. `turn` is the option."""
        stored = StoredRow(parse_row("the recorded rollout", line), 0)
        before = calls_before(stored, turn)
        assert before is not None, "only rollouts with a branch point are handed out"
        return cls(stored, before)

    @property
    def is_done(self) -> bool:
        """Whether all sessions were handed out and none is left to close."""
        return not self.sessions_needed and self._original is None and not self._orphaned_forks

    async def session(self, player: Player) -> Resources:
        """A copy of the original session; the last caller gets the original."""
        self._limits = player.environment.limits
        try:
            async with self._lock:
                original = await self._original_session(player)
                if self.sessions_needed == 1:
                    self._original = None
                    return original
                fork = await self._fork(original) if self._can_fork else None
                if fork is not None:
                    return fork
        finally:
            self.sessions_needed -= 1
        return await self._replay(player)

    async def close(self) -> None:
        """Close the sessions that were not handed out."""
        unused: list[Resources | asyncio.Future[Resources]] = [*self._orphaned_forks]
        if self._original is not None:
            unused.append(self._original)
        await asyncio.gather(*map(self._close, unused))

    async def _close(self, session: Resources | asyncio.Future[Resources]) -> None:
        try:
            seconds = self._limits.close
            ready = session if isinstance(session, Resources) else await step("close", seconds, session)
            await step("close", seconds, awaited(ready.close))
        except Failure:  # the run has ended: no rollout can record the failure
            return

    async def _original_session(self, player: Player) -> Resources:
        """The original session, replayed on the first call. A failed replay fails all later calls too."""
        if self._failure is not None:
            raise self._failure
        if self._original is None:
            try:
                self._original = await self._replay(player)
            except Failure as failure:
                self._failure = failure
                raise
        return self._original

    async def _replay(self, player: Player) -> Resources:
        """A new session in which the recorded calls before the branch point were run again."""
        environment = player.environment
        task = environment.task(private(self.row))
        job = Job(self.parent, self.parent, 0, task, self.row, seed=self.seed, environment=environment.name)
        episode = Episode(job, environment.session(player.shared, self.seed), NO_MODEL, environment.limits_for(task))
        session, self.trajectory = await reach(episode, self._response, self._model_calls, self.turn)
        return session

    async def _fork(self, original: Resources) -> Resources | None:
        """A copy of the session; None if its class cannot be copied."""
        forking = asyncio.ensure_future(awaited(original.fork))
        try:
            fork: Resources = await asyncio.shield(forking)
        except asyncio.CancelledError:
            self._orphaned_forks.append(forking)  # fork() goes on, and its session must be closed later
            raise
        except Failure as failure:
            if failure.kind != "cannot_fork":
                raise
            self._can_fork = False
            return None
        if type(fork) is not type(original) or fork is original:
            raise Failure("bad_fork", f"{type(original).__name__}.fork() must return another session, not {fork!r:.80}")
        fork.seed = original.seed
        return fork


class _Continuation(Episode):
    """A rollout that starts at a branch point."""

    __slots__ = ("_branches", "_player", "_point")

    def __init__(
        self, branches: BranchPoints, point: BranchPoint, job: Job, player: Player, deadline: Deadline
    ) -> None:
        placeholder = Resources()  # replaced by `open`
        limits = player.environment.limits_for(job.task)
        super().__init__(job, placeholder, player.model, limits, deadline, player.recorder())
        self._branches, self._point, self._player = branches, point, player
        job.origin = {"parent": point.parent, "branch_turn": point.turn, "session_seed": point.seed}

    async def open(self) -> None:
        """Get a session from the branch point, and start with the recorded trajectory."""
        session = self._branches.session(self.job.task_id, self._player)
        self.resources = await self.step("open", self.limits.rollout, session)
        self.adopt(self._point.trajectory, [dict(call) for call in self._point.calls], {})
        self.offer_tools()

    def start_over(self, task: Task, resources: Resources) -> None:
        """Begin again at the branch point, with another session of it."""
        super().start_over(task, resources)
        self._branches.add(self.job.task_id, self._point, self._point.sessions_needed + 1)


def check_agents(environments: list[Environment]) -> None:
    """Refuse agents that cannot continue a rollout."""
    for environment in environments:
        if not can_continue(environment.agent):
            name = type(environment.agent).__name__
            cause = f"{environment.name}: its agent {name} cannot continue a recorded rollout"
            raise UserError(cause, "Use simple, single_turn, gymnasium or conversation, or set its `continues`")


def _branch_id(stored: StoredRow, turn: int) -> str:
    return f"{stored.name}.t{turn}"


def calls_before(stored: StoredRow, turn: int) -> int | None:
    """The number of model calls before the branch point; None if the rollout has no such branch point.

    Raises `Failure` if the rollout cannot be cut there.
    """
    if not stored.is_record:
        raise bad_row("not a recorded rollout")
    calls = stored.row.get("model_calls")
    if not calls or stored.row["outcome"] in UNREWARDED:
        return None
    sizes = sizes_of(calls)
    if sizes is None or min(sizes) < 0:
        raise bad_row("model_calls: the number of items of a call is missing or negative")
    before = turn if turn >= 0 else len(calls) + turn
    if not 0 <= before < len(calls):
        return None
    output = stored.response().output
    if not 0 <= call_start(output, calls, before) <= len(output):
        raise bad_row("model_calls do not match the items of the response")
    return before
