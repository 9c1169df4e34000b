"""The solver of a task as an agent: it plays in the worker, and asks the model of the rollout."""

from __future__ import annotations

from ludus.agent import Agent
from ludus.episode import Episode
from ludus.errors import UserError
from ludus_inspect.resources import InspectResources


class InspectAgent(Agent):
    """Lets the solver of an Inspect task play each rollout.

    agent: {type: inspect}
    """

    async def act(self, episode: Episode) -> str:
        """Play the sample, and say which of its limits ended it."""
        resources = episode.resources
        if not isinstance(resources, InspectResources):
            raise UserError("the agent inspect plays tasks of Inspect", "Leave out agent.type")
        resources.sample = sample = resources.shared.sample(episode.task.inspect, episode.job.repeat)  # type: ignore[attr-defined]
        result = await episode.step("agent", episode.limits.rollout, sample.play(episode))
        resources.result = result
        limit = result.get("limit")
        return f"{limit['type']}_limit" if limit else "completed"
