"""The turns of a game: the model answers, the game makes something of it, until the game is over."""

from __future__ import annotations

from pydantic import PositiveInt

from ludus.agent import Agent, AgentConfig
from ludus.episode import Episode
from ludus.game import Game, spoken


class GymnasiumAgent(Agent):
    """Plays a `Game`. Every answer is a step, an incomplete one too; what the game says in return is a user's message.

    A game that has nothing to say and is not over is asked for its next step all the same. Stop reasons: `terminated`
    and `truncated` as the game says, and `max_steps`, which leaves it with the reward so far.
    """

    class Config(AgentConfig):
        """Settings of the turns."""

        max_steps: PositiveInt = 10

    config: Config
    continues = True

    async def act(self, episode: Episode) -> str:
        """Play one rollout."""
        game, task, limits = episode.resources, episode.task, episode.limits
        if not isinstance(game, Game):
            raise TypeError(f"the gymnasium agent plays a Game, and {type(game).__name__} is none")
        if not game.begun:
            episode.say(*spoken(await episode.step("open", limits.open, game.begin(task))))
        for _ in range(len(game.steps), self.config.max_steps):
            response = await episode.ask()
            step = await episode.step("tool", limits.tool, game.advance(task, response))
            if step.terminated:
                return "terminated"
            if step.truncated:
                return "truncated"
            episode.say(*step.items())
        return "max_steps"
