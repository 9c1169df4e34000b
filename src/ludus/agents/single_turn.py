"""One answer and no more, for environments where what the model calls is the answer and nobody runs it."""

from __future__ import annotations

from ludus.agent import Agent
from ludus.episode import Episode


class SingleTurnAgent(Agent):
    """Asks the model once and runs none of its function calls.

    Stop reasons: `completed`, or whatever the provider gave for an incomplete answer (`max_output_tokens`,
    `content_filter`).
    """

    continues = True

    async def act(self, episode: Episode) -> str:
        """Play one rollout."""
        response = await episode.ask()
        return response.incomplete_reason or "completed"
