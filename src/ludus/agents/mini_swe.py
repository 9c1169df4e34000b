"""The package mini-swe-agent as an agent: its loop and its prompts, with our model and our tools.

The package runs as a program of its own for each rollout (see `command.py`), because importing it prints, makes a
folder and loads a file of settings. Its model calls go through our model, so that they are recorded with their tokens.
Its commands go through the task's tool `bash`, so that they run in the task's sandbox.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from pydantic import PositiveInt

from ludus.agent import Agent, AgentConfig
from ludus.agents.command import CommandAgent
from ludus.episode import Episode
from ludus.errors import missing_extra

_PROGRAM = Path(__file__).with_name("mini_swe_program.py")


class MiniSweAgent(Agent):
    """Runs mini-swe-agent on a task that offers a tool `bash(command)`.

    agent: {type: mini_swe, max_steps: 100}
    """

    class Config(AgentConfig):
        """Settings of the agent."""

        #: the most model calls of a rollout
        max_steps: PositiveInt = 100

    config: Config

    @asynccontextmanager
    async def share(self) -> AsyncIterator[Agent]:
        """Start the proxy through which the programs of all rollouts reach our model and tools."""
        if importlib.util.find_spec("minisweagent") is None:
            raise missing_extra("mini-swe-agent", "swe")
        command = [sys.executable, str(_PROGRAM)]
        config = CommandAgent.Config(
            command=command, max_steps=self.config.max_steps, tool_errors=self.config.tool_errors
        )
        async with CommandAgent(config).share() as playing:
            yield playing

    async def act(self, episode: Episode) -> str:
        """Not called: the agent that `share` gives plays."""
        raise RuntimeError("mini_swe needs its proxy: use `async with agent.share() as agent`")
