"""Agents drive a rollout: they ask the model, run its tool calls, and decide when the rollout is over."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict

from ludus.episode import Episode


class AgentConfig(BaseModel):
    """Settings of an agent. Subclass it as `Config` inside your agent. Unknown settings are refused.

    If a tool raises, the model reads the error (`tool_errors: show`), or the rollout fails (`tool_errors: fail`).
    """

    model_config = ConfigDict(extra="forbid")

    tool_errors: Literal["show", "fail"] = "show"


def can_continue(agent: Agent) -> bool:
    """Whether an agent can continue a rollout: the class that defines `act` must also set `continues = True`."""
    defines_act = next(kind for kind in type(agent).__mro__ if "act" in vars(kind))
    return bool(vars(defines_act).get("continues"))


class Agent:
    """Base of all agents. One agent object plays many rollouts at once: keep no state of a rollout in `self`.

    class OneQuestion(Agent):
        async def act(self, episode: Episode) -> str:
            await episode.ask()
            return "completed"
    """

    Config: ClassVar[type[AgentConfig]] = AgentConfig

    #: Whether `act` can continue a trajectory from any model call. Branching and checkpoints need that.
    continues: ClassVar[bool] = False

    #: Whether a rollout that starts again asks the model the same again, so that earlier answers serve it. What drives
    #: it is a program, and its model calls are journaled (`EpisodeRecorder.kept_calls`).
    repeats_calls: ClassVar[bool] = False

    #: The settings. For the type checker, a subclass may write `config: Config`.
    config: Any

    #: The folder of the environment, where files that settings name may lie.
    folder: Path | None = None

    def __init__(self, config: Any = None) -> None:
        self.config = config if config is not None else self.Config()

    @asynccontextmanager
    async def share(self) -> AsyncIterator[Agent]:
        """Open once what all rollouts in this process share (such as a second model), and yield the agent to play."""
        yield self

    def equip(self, shared: Any, resources: type[Any]) -> Any:
        """Called once with what the environment's sessions share, before the first opens. Returns what they get.

        An agent whose program runs in the sessions' sandboxes adds the program's files here (`EquippedProvider`).
        """
        return shared

    async def run_metrics(self, rollouts: Iterable[Any], own: dict[str, float]) -> dict[str, float]:
        """Figures of a whole run that the agent computes, besides or in place of `own`, those of the resources."""
        return {}

    async def act(self, episode: Episode) -> str:
        """Play one rollout through `episode`, and return the reason why it stopped."""
        raise TypeError(f"{type(self).__name__} does not define act()")
