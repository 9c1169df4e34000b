"""Checkpoints: each turn of a rollout is journaled as it ends, and an interrupted rollout goes on after its last turn.

A turn is saved when the next model call begins: the items since then, the record of the model call, the usage and the
times so far. So a crash loses the turn that is being played, and no other: an answer is not taken before the turn in
front of it is safe.

A rollout is brought back by playing its record again in a new session, or in a fork of its branch point. Every output
of a tool is compared with the record. If one differs, or the record cannot be played, the rollout starts over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
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

#: Turns are written together after this many seconds, or when an answer comes whose turn is not written yet.
WRITE_SECONDS = 0.005


class TurnWriter(Protocol):
    """Where the turns of all rollouts of a process go."""

    def add(self, job: Job, line: bytes) -> int:
        """Take the line of a turn. Returns its number."""

    def settle(self, number: int) -> Awaitable[None] | None:
        """Make the turn with this number safe. Returns what to await for that, if anything."""


class DirectWriter:
    """Writes turns to the journal, from the process that owns it."""

    def __init__(self, journal: TurnJournal) -> None:
        self._journal = journal
        self._added = self._written = 0
        self._timer: asyncio.TimerHandle | None = None

    def add(self, job: Job, line: bytes) -> int:
        """Take the line of a turn."""
        self._journal.add(job.rollout_id, line)
        self._added += 1
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(WRITE_SECONDS, self._write)
        return self._added

    def settle(self, number: int) -> None:
        """Write the turn, if it is not written."""
        if number > self._written:
            self._write()

    def _write(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._journal.flush()
        self._written = self._added


class SavedTurns:
    """Saves the turns of one rollout."""

    __slots__ = ("_asides", "_calls", "_items", "_number", "_saved", "_writer")

    def __init__(self, writer: TurnWriter) -> None:
        self._writer, self._number = writer, 0

    def begin(self, episode: Episode, saved: int = 0) -> None:
        """From here on everything is new; `saved` turns of this rollout are saved."""
        self._items, self._calls, self._asides = len(episode.items), len(episode.calls), len(episode.asides)
        self._saved = saved

    def save(self, episode: Episode) -> None:
        """Save what happened since the last model call, unless this is the first one."""
        calls = episode.calls
        if len(calls) == self._calls:
            return
        job, items = episode.job, episode.items.encoded()
        turn: dict[str, Any] = {
            "rollout_id": job.rollout_id,
            "attempt": job.attempt,
            "from": self._saved,
            "items": items[self._items :],
            "model_calls": calls[self._calls :],
            "usage": episode.usage,
            "timings": episode.timings,
        }
        if len(episode.asides) > self._asides:
            turn["asides"] = episode.asides[self._asides :]
            self._asides = len(episode.asides)
        if not self._saved and episode.first_tools is not episode.params.get("tools"):
            turn["tools"] = episode.first_tools
        self._saved += len(calls) - self._calls
        self._items, self._calls = len(items), len(calls)
        self._number = self._writer.add(job, encode(turn))

    def settle(self) -> Awaitable[None] | None:
        """An answer has come: make sure that the turn before is safe."""
        return self._writer.settle(self._number)


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
            calls = [UserCall.model_validate(each) for each in self.asides]
            ending = Ending(reason="", user_turns=turns + (before.user_turns if before else 0))
            ending.user_calls = [*earlier, *calls]
            response.data["metadata"] = {"conversation": encode(ending.model_dump()).decode()}
        return response


class ResumingAgent:
    """Brings an interrupted rollout back to its last turn, then lets the agent go on.

    If that is not possible, the rollout starts over in a new session, and `progress` says so.
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
            if episode.turns is not None:
                episode.turns.begin(episode, saved)
        return await self._agent.act(episode)

    async def _catch_up(self, episode: Episode) -> int:
        began, rollout = perf_counter(), InterruptedRollout(self._lines)
        talks = isinstance(self._player.environment.agent, ConversationAgent)
        offset = len(episode.items) - len(episode.task.input)
        before = Ending.of(episode.response) if talks else None
        whole = rollout.response(before, talks=talks)
        given = [dict(call) for call in episode.calls]  # of a branch: tool calls are noted in the last of them
        await catch_up(episode, _own_part(whole, before, offset), rollout.calls)
        episode.calls[:] = given
        episode.go_on(whole, rollout.calls, rollout.usage)
        episode.asides += rollout.asides
        episode.timings.clear()
        replayed = perf_counter() - began
        episode.timings.update({**rollout.timings, "replay": replayed})
        episode.steps[:] = [("replay", began, replayed)]
        self._progress.resumed += 1
        self._progress.turns_kept += len(rollout.calls)
        return len(rollout.calls)

    async def _start_over(self, episode: Episode, failure: Failure) -> None:
        """Close the session, and open a new one."""
        self._progress.started_over += 1
        why = f"{failure.kind}: {failure.cause:.300}"
        self._progress.notices.append(f"rollout {episode.job.rollout_id} starts over: {why}")
        if type(episode.resources).close is not Resources.close:
            limit = episode.limits.close
            await step("close", limit, awaited(episode.resources.close), "", None, episode.timings)
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
    if not can_continue(agent):
        return f"its agent {type(agent).__name__} cannot continue a rollout"
    if not kind.replays:
        return f"{kind.__name__}.replays is False"
    if kind.judged_by_response and (kind.toolbox or kind.call is not Resources.call):
        return f"the tools of {kind.__name__} do not run again (judged_by_response)"
    return None


def without_checkpoints(environments: list[Environment]) -> list[str]:
    """One line about each environment whose turns are not saved."""
    reasons = ((environment.name, why_not_saved(environment)) for environment in environments)
    return [f"{name}: turns are not saved: {why}" for name, why in reasons if why is not None]
