"""Agents drive a rollout: ask the model, run its tool calls, decide when it is over."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from ludus.episode import Episode


class AgentConfig(BaseModel):
    """Settings of an agent; subclass it as `Config`. Unknown settings are refused."""

    model_config = ConfigDict(extra="forbid")


class Agent:
    """Base of all agents. One agent serves many rollouts at once, so it keeps nothing between calls.

    class OneQuestion(Agent):
        async def act(self, episode: Episode) -> str:
            await episode.ask()
            return "completed"
    """

    Config: ClassVar[type[AgentConfig]] = AgentConfig

    #: Whether `act` goes on from wherever the episode's items stand, so that a recorded rollout can be branched.
    continues: ClassVar[bool] = False

    def __init__(self, config: Any = None) -> None:
        self.config = config if config is not None else self.Config()

    @asynccontextmanager
    async def share(self) -> AsyncIterator[Agent]:
        """The agent as it plays, with what all its rollouts in this process share (a model of its own) opened once."""
        yield self

    async def act(self, episode: Episode) -> str:
        """Play one rollout through `episode`, and return why it stopped."""
        raise TypeError(f"{type(self).__name__} does not define act()")
