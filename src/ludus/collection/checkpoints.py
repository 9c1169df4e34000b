"""Checkpoints: each turn of a rollout is journaled as it ends, and an interrupted rollout goes on after its last turn.

A turn ends when the next model call begins. Its delta is written within `WRITE_SECONDS`: the items, the records of the
model calls, the usage and the times so far. All turns that ended meanwhile are written together. Turns of a few
milliseconds wait up to `SHORT_TURN_SECONDS`: their loss costs little, and so they cost next to nothing
(benchmarks/checkpoints.py). A crash loses the current turn, turns that ended in the last 20 milliseconds, and short
turns that ended in the last quarter of a second.

To restore a rollout, its record is replayed in a new session, or in a fork of its branch point. Every tool output is
compared with the record. If one differs, or the replay fails, the rollout starts over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from math import inf
from time import perf_counter
from typing import Any, Protocol

import orjson

from ludus.agent import can_continue
from ludus.agents.conversation import ConversationAgent, Ending
from ludus.agents.recorded import catch_up
from ludus.agents.simulated_user import UserCall
from ludus.collection.player import Player
from ludus.collection.progress import Progress
from ludus.environment import Environment
from ludus.episode import Acting, Episode
from ludus.errors import Failure
from ludus.resources import Resources
from ludus.response import Item, Response
from ludus.rollout import Job
from ludus.runtime.boundary import step
from ludus.runtime.encoding import encode
from ludus.runtime.threads import awaited
from ludus.store.turns import TurnJournal
from ludus.task import private

#: A turn is written at most this many seconds after it ended, with all turns that ended since the last write.
WRITE_SECONDS = 0.02

#: The same for a turn that took less than `WRITE_SECONDS`.
SHORT_TURN_SECONDS = 0.25


class TurnWriter(Protocol):
    """Where the turns of all rollouts of a process go."""

    def add(self, job: Job, line: bytes, turns: int) -> int:
        """Take the delta of a rollout that now has `turns` turns. Returns the number of the line."""

    def flush(self) -> None:
        """Write the lines that were taken."""

    def settle(self, number: int) -> Awaitable[None] | None:
        """An awaitable that ends when the line with this number is safe; None if it is already."""


class DirectWriter:
    """Writes turns to the journal in the process that owns it: a written line is safe."""

    def __init__(self, journal: TurnJournal) -> None:
        self._journal = journal

    def add(self, job: Job, line: bytes, turns: int) -> int:
        """Take a line."""
        self._journal.add(job.rollout_id, line)
        return 0

    def flush(self) -> None:
        """Write the lines that were taken."""
        self._journal.flush()

    def settle(self, number: int) -> None:
        """Nothing to wait for."""


class WritesTurns(Protocol):
    """A rollout with turns to write."""

    def write(self, writer: TurnWriter) -> None:
        """Write the turns that have ended and are not written."""


class TurnKeeper:
    """Saves the turns of all rollouts of a process."""

    def __init__(self, writer: TurnWriter) -> None:
        self.writer = writer
        self._waiting: list[WritesTurns] = []
        self._timer: asyncio.TimerHandle | None = None
        self.due = inf  #: when the turns that have ended are written

    def note(self, rollout: WritesTurns) -> None:
        """A rollout has turns to write."""
        self._waiting.append(rollout)

    def write_by(self, due: float, now: float) -> None:
        """Write all ended turns at `due` at the latest. Times are of `time.perf_counter`."""
        if due < self.due:
            if self._timer is not None:
                self._timer.cancel()
            self.due, self._timer = due, asyncio.get_running_loop().call_later(due - now, self.write)

    def write(self) -> None:
        """Write all turns that have ended."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.due = inf
        waiting, self._waiting = self._waiting, []
        for rollout in waiting:
            rollout.write(self.writer)
        self.writer.flush()


#: The position of a rollout: its number of items, model calls and asides.
Reached = tuple[int, int, int]


class SavedTurns:
    """Saves the turns of one rollout."""

    __slots__ = ("_began", "_episode", "_first", "_keeper", "_noted", "_number", "_reached", "_recorder", "_written")

    def __init__(self, keeper: TurnKeeper, episode: Episode) -> None:
        self._keeper, self._episode, self._recorder = keeper, episode, episode.recorder
        self._number, self._noted, self._first = 0, False, 0
        self._written: Reached = (0, 0, 0)
        self._reached = self._written
        self._began = 0.0  # the start of the current turn

    def begin(self, saved: int = 0) -> None:
        """Everything from here on is new; `saved` turns of this rollout are already saved."""
        episode = self._episode
        self._written = self._reached = (len(episode.items), len(episode.calls), len(episode.asides))
        self._first = len(episode.calls) - saved
        self._began = perf_counter()

    def save(self) -> None:
        """A model call begins: save the turn before it, if there is one."""
        recorder, keeper = self._recorder, self._keeper
        calls = len(recorder.calls)
        if calls == self._reached[1]:
            return
        self._reached = (len(self._episode.items), calls, len(recorder.asides))
        if not self._noted:
            self._noted = True
            keeper.note(self)
        began, self._began = self._began, perf_counter()
        is_short = self._began - began < WRITE_SECONDS
        due = self._began + (SHORT_TURN_SECONDS if is_short else WRITE_SECONDS)
        if due < keeper.due:
            keeper.write_by(due, self._began)

    def settle(self) -> Awaitable[None] | None:
        """An answer arrived. Returns an awaitable if written turns are not safe yet."""
        return self._keeper.writer.settle(self._number) if self._number else None

    def end(self) -> None:
        """The rollout has ended: drop its turns."""
        self._written = self._reached

    def write(self, writer: TurnWriter) -> None:
        """Write the turns that have ended and are not written."""
        self._noted = False
        episode = self._episode
        items, calls, asides = self._written
        to_items, to_calls, to_asides = self._reached
        if calls == to_calls:
            return
        job = episode.job
        turn: dict[str, Any] = {
            "rollout_id": job.rollout_id,
            "attempt": job.attempt,
            "from": calls - self._first,
            "items": episode.items.encoded()[items:to_items],
            "model_calls": episode.calls[calls:to_calls],
            "usage": episode.recorder.usage_of(to_calls),
            "timings": episode.recorder.timings,
        }
        if to_asides > asides:
            turn["asides"] = episode.asides[asides:to_asides]
        tools = episode.recorder.first_tools
        if calls == self._first and tools is not episode.params.get("tools"):
            turn["tools"] = tools
        self._written = self._reached
        self._number = writer.add(job, encode(turn), to_calls - self._first)


class InterruptedRollout:
    """The saved turns of a rollout."""

    def __init__(self, lines: bytes) -> None:
        self.items: list[Item] = []
        self.calls: list[dict[str, Any]] = []
        self.asides: list[Any] = []
        self.usage: dict[str, Any] = {}
        self.timings: dict[str, float] = {}
        self.tools: list[dict[str, Any]] = []
        for line in lines.splitlines():
            turn = orjson.loads(line)
            if turn["from"] == 0:
                self.items, self.calls, self.asides, self.tools = [], [], [], turn.get("tools") or []
            elif turn["from"] != len(self.calls):
                raise ValueError("a turn is missing")
            self.items += turn["items"]
            self.calls += turn["model_calls"]
            self.asides += turn.get("asides", ())
            self.usage, self.timings = turn["usage"], turn["timings"]

    def response(self, before: Ending | None, *, talks: bool) -> Response:
        """The saved trajectory as a response. If the agent `talks` with a simulated user, the response also holds the
        user's calls, and those of the items in front (`before`)."""
        response = Response.checked(Response.of(*self.items, tools=self.tools).data)
        if talks:
            earlier = before.user_calls if before else []
            turns = sum(item.get("role") == "user" for item in self.items)
            calls = [UserCall.model_validate(call) for call in self.asides]
            ending = Ending(reason="", user_turns=turns + (before.user_turns if before else 0))
            ending.user_calls = [*earlier, *calls]
            response.data["metadata"] = {"conversation": encode(ending.model_dump()).decode()}
        return response


class ResumingAgent:
    """Restores an interrupted rollout up to its last turn, then lets the agent continue.

    If that fails, the rollout starts over in a new session, with a notice in `progress`.
    """

    def __init__(self, agent: Acting, lines: bytes, player: Player, progress: Progress) -> None:
        self._agent, self._lines, self._player, self._progress = agent, lines, player, progress

    async def act(self, episode: Episode) -> str:
        """Play the saved turns again, then the rest."""
        try:
            saved = await self._catch_up(episode)
        except (Failure, KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            await self._start_over(episode, Failure.of(error, "tool"))
        else:
            if episode.recorder.turns is not None:
                episode.recorder.turns.begin(saved)
        return await self._agent.act(episode)

    async def _catch_up(self, episode: Episode) -> int:
        began, rollout = perf_counter(), InterruptedRollout(self._lines)
        talks = isinstance(self._player.environment.agent, ConversationAgent)
        offset = len(episode.items) - len(episode.task.input)
        before = Ending.of(episode.response) if talks else None
        whole = rollout.response(before, talks=talks)
        branched = [dict(call) for call in episode.calls]  # of a branch: tool calls are noted in the last of them
        await catch_up(episode, _own_part(whole, before, offset), rollout.calls)
        episode.calls[:] = branched
        episode.go_on(whole, rollout.calls, rollout.usage)
        episode.recorder.resume(began, rollout.timings, rollout.asides)
        self._progress.resumed += 1
        self._progress.turns_kept += len(rollout.calls)
        return len(rollout.calls)

    async def _start_over(self, episode: Episode, failure: Failure) -> None:
        """Close the session, and open a new one."""
        self._progress.started_over += 1
        self._progress.turns_lost += len(self._lines.splitlines())
        why = f"{failure.kind}: {failure.cause:.300}"
        self._progress.notices.append(f"rollout {episode.job.rollout_id} starts over: {why}")
        if type(episode.resources).close is not Resources.close:
            limit = episode.limits.close
            await step("close", limit, awaited(episode.resources.close), "", None, episode.recorder.timings)
        environment = self._player.environment
        session = environment.session(self._player.shared, episode.job.seed)
        episode.start_over(environment.task(private(episode.job.row)), session)
        await episode.open()


def _own_part(whole: Response, before: Ending | None, offset: int) -> Response:
    """The trajectory with the user's calls of this part only, counted from its start."""
    ending = Ending.of(whole)
    if ending is None:
        return whole
    earlier = len(before.user_calls) if before else 0
    calls = [call.model_copy(update={"after": call.after - offset}) for call in ending.user_calls[earlier:]]
    own = ending.model_copy(update={"user_calls": calls})
    return Response({**whole.data, "metadata": {"conversation": encode(own.model_dump()).decode()}})


def why_not_saved(environment: Environment) -> str | None:
    """Why the turns of an environment's rollouts are not saved; None if they are."""
    agent, kind = environment.agent, environment.resources
    if not (agent.repeats_calls or can_continue(agent)):
        return f"its agent {type(agent).__name__} cannot continue a rollout"
    if not kind.replays:
        return f"{kind.__name__}.replays is False"
    if agent.repeats_calls:
        return None
    if kind.judged_by_response and (kind.toolbox or kind.call is not Resources.call):
        return f"the tools of {kind.__name__} do not run again (judged_by_response)"
    return None


def without_checkpoints(environments: list[Environment]) -> list[str]:
    """One line about each environment whose turns are not saved."""
    reasons = ((environment.name, why_not_saved(environment)) for environment in environments)
    return [f"{name}: turns are not saved: {why}" for name, why in reasons if why is not None]
