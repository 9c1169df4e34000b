"""Plays a match of two players in one rollout. Each player has a conversation of its own.

The main thread is the player at the row's seat. In self-play the other player is a thread of the same rollout, trained
with its own reward; with a model of its own (`agent.opponent`) it is a side thread, which is not trained on.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import perf_counter
from typing import Any

from pydantic import PositiveInt

from ludus import Agent, AgentConfig, Episode, Model, Request, Response
from ludus.episode import refuse_aborted, stamp_version
from ludus.models import open_model
from ludus.response import Items
from ludus.task import derive_seed
from ludus.thread import Thread
from ludus.tokens import TokenLog
from ludus_lab.textarena.resources import Arena, thread_name


class SelfPlayAgent(Agent):
    """Asks the model of the player whose turn it is, until the match is over.

    Stop reasons: `terminated`, and `max_steps`, which leaves the match unfinished.
    """

    class Config(AgentConfig):
        """Settings of the players."""

        #: The other player's model in self-play, as on the command line or as a block. Null: the policy plays both.
        opponent: str | dict[str, Any] | None = None

        #: The most model calls of a rollout, of both players together.
        max_steps: PositiveInt = 100

    config: Config
    _model: Model | None = None

    @asynccontextmanager
    async def share(self) -> AsyncIterator[Agent]:
        """Open the other player's model. Gives a copy of the agent that uses it."""
        if self.config.opponent is None:
            yield self
            return
        async with open_model(self.config.opponent) as model:
            opened = copy.copy(self)
            opened._model = model
            yield opened

    async def act(self, episode: Episode) -> str:
        """Play one match."""
        arena, task = episode.resources, episode.task
        if not isinstance(arena, Arena) or not isinstance(task, Arena.Task):
            raise TypeError(f"the self_play agent needs an Arena as resources, and {type(arena).__name__} is none")
        match = arena.match(task)
        other = _OtherPlayer(episode, self._model, thread_name(task)) if task.opponent == "self" else None
        try:
            for _ in range(self.config.max_steps):
                if match.over:
                    return "terminated"
                observation = {"role": "user", "content": match.show()}
                if match.seat == task.seat or other is None:
                    episode.say(observation)
                    response = await episode.ask()
                else:
                    response = await other.ask(observation)
                match.play(response.output_text)
            return "terminated" if match.over else "max_steps"
        finally:
            if other is not None:
                other.close()


class _OtherPlayer:
    """The conversation of the player who is not the main thread."""

    def __init__(self, episode: Episode, model: Model | None, name: str) -> None:
        self._episode, self._model = episode, model or episode.model
        self._session = f"{episode.job.rollout_id}/{name}"
        self._log = TokenLog()
        self._thread = Thread(name, "side" if model is not None else "agent", items=Items(episode.task.input))
        episode.recorder.threads.append(self._thread)

    async def ask(self, observation: dict[str, Any]) -> Response:
        """Show the player an observation, and return the player's answer."""
        episode, thread, recorder = self._episode, self._thread, self._episode.recorder
        thread.items.append(observation)
        turn, seconds, version = len(thread.calls), episode.limits.model, self._model.policy_version
        request = Request(
            thread.items,
            self._session,
            derive_seed(episode.job.seed, thread.name, turn),
            turn,
            perf_counter() + seconds,
            self._log.last if thread.calls else None,
            episode.params,
        )
        response = await episode.step("model", seconds, self._model.respond(request))
        stamp_version(response, version)
        refuse_aborted(response)
        recorder.record_call(response, None, [], self._log)
        thread.calls.append({**recorder.calls.pop(), "at": len(thread.items)})
        thread.items.extend(response.output)
        return response

    def close(self) -> None:
        """Let the model drop the session."""
        self._model.forget(self._session)
