"""Plays a game turn by turn: each answer of the model is a step, until the game is over."""

from __future__ import annotations

from pydantic import PositiveInt

from ludus.agent import Agent, AgentConfig
from ludus.episode import Episode
from ludus.game import Game, observation_items


class GymnasiumAgent(Agent):
    """Plays a `Game`. Each answer is a step, even an incomplete one. The game's observation is a user message.

    A game that gives no observation and is not over continues with the next step. Stop reasons: the game's `terminated`
    and `truncated`, and `max_steps`, which keeps the reward so far.
    """

    class Config(AgentConfig):
        """Settings of the turns."""

        #: the most model calls of a rollout
        max_steps: PositiveInt = 10

    config: Config
    continues = True

    async def act(self, episode: Episode) -> str:
        """Play one rollout."""
        game, task, limits = episode.resources, episode.task, episode.limits
        if not isinstance(game, Game):
            raise TypeError(f"the gymnasium agent needs a Game as resources, and {type(game).__name__} is not a Game")
        if not game.begun:
            episode.say(*observation_items(await episode.step("open", limits.open, game.begin(task))))
        for _ in range(len(game.steps), self.config.max_steps):
            response = await episode.ask()
            step = await episode.step("tool", limits.tool, game.advance(task, response))
            if step.terminated:
                return "terminated"
            if step.truncated:
                return "truncated"
            episode.say(*step.items())
        return "max_steps"
