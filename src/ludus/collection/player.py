"""Playing the rollouts of one environment: a session, the five steps and a receipt.

The collector, `ludus verify` and the agent server all use `Player`, so that a rollout is the same everywhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
from typing import Any

from ludus.agent import Agent
from ludus.environment import Environment
from ludus.episode import Acting, Episode, play
from ludus.model import Model
from ludus.recorder import EpisodeRecorder, TracingRecorder
from ludus.rollout import Job, Rollout
from ludus.runtime.deadline import Deadline
from ludus.store.receipts import Signer


class Player:
    """Plays rollouts of an environment. `shared` is passed to every session. With `tokens`, a rollout without token ids
    is masked. With `times_steps`, the record says when each step began.

    player = Player(environment, shared, agent, model)
    rollout = await player.play(player.episode(job))
    """

    def __init__(
        self,
        environment: Environment,
        shared: Any,
        agent: Agent,
        model: Model,
        *,
        tokens: bool = False,
        times_steps: bool = False,
    ) -> None:
        self.environment = environment
        self.shared = agent.equip(shared, environment.resources)
        self.agent = agent
        self.model = model
        self.signer = Signer(environment)
        self._require_tokens = tokens
        self.recorder = TracingRecorder if times_steps else EpisodeRecorder
        self._verifies_each = not environment.resources.by_group
        self._fails_on_tool_errors = getattr(environment.agent.config, "tool_errors", "show") == "fail"

    def asking(self, model: Model) -> Player:
        """A copy of this player with another model."""
        player = copy.copy(self)
        player.model = model
        return player

    def episode(self, job: Job, deadline: Deadline | None = None) -> Episode:
        """An episode with a new session. Raises `Failure` if the session cannot be created."""
        environment = self.environment
        session = environment.session(self.shared, job.seed)
        episode = Episode(job, session, self.model, environment.limits_for(job.task), deadline, self.recorder())
        episode.fails_on_tool_errors = self._fails_on_tool_errors
        return episode

    async def play(self, episode: Episode, agent: Acting | None = None) -> Rollout:
        """Play an episode and add a receipt. In an environment with `verify_group` the verdict comes later."""
        rollout = await play(episode, agent or self.agent, verify=self._verifies_each)
        if self._require_tokens:
            rollout.require_tokens()
        if rollout.verdict is not None and rollout.response is not None:
            job = episode.job
            rollout.receipt = self.signer.sign(job.row, rollout.response.output, job.task_id)
        return rollout


class Players:
    """The players of a run, one per environment: opened on first use, closed with the stack."""

    def __init__(
        self, stack: contextlib.AsyncExitStack, model: Model, *, tokens: bool = False, times_steps: bool = False
    ) -> None:
        self.opened: dict[str, Player] = {}
        self._stack, self._model, self._require_tokens, self._times_steps = stack, model, tokens, times_steps
        self._lock = asyncio.Lock()

    async def open(self, environment: Environment) -> Player:
        """The player of an environment, opened if necessary."""
        async with self._lock:
            player = self.opened.get(environment.name)
            if player is None:
                enter = self._stack.enter_async_context
                shared, agent = await enter(environment.share()), await enter(environment.agent.share())
                wanted = {"tokens": self._require_tokens, "times_steps": self._times_steps}
                player = Player(environment, shared, agent, self._model, **wanted)
                self.opened[environment.name] = player
        return player
