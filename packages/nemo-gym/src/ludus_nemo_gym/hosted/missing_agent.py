"""An agent of a configuration whose code is not here. The user may choose another one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ludus.agent import Agent, AgentConfig
from ludus.episode import Episode
from ludus.errors import UserError


class MissingAgent(Agent):
    """Refuses to play, and says what is missing."""

    class Config(AgentConfig):
        """The agent that is missing, and where it was looked for."""

        agent: str
        place: str

    config: Config

    @asynccontextmanager
    async def share(self) -> AsyncIterator[Agent]:
        """Say what is missing."""
        raise self._error()
        yield self

    async def act(self, episode: Episode) -> str:
        """Say what is missing."""
        raise self._error()

    def _error(self) -> UserError:
        cause = f"there is no agent {self.config.agent} in {self.config.place}"
        return UserError(cause, "Choose one of Ludus's: --set agent.type=simple")
