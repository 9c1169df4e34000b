"""A single model call, for environments where the model's function calls are the answer and are not run."""

from __future__ import annotations

from ludus.agent import Agent
from ludus.episode import Episode


class SingleTurnAgent(Agent):
    """Asks the model once and runs none of its function calls.

    Stop reasons: `completed`, or the provider's reason for an incomplete answer (`max_output_tokens`,
    `content_filter`).
    """

    continues = True

    async def act(self, episode: Episode) -> str:
        """Play one rollout."""
        response = await episode.ask()
        return response.incomplete_reason or "completed"
