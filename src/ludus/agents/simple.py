"""The tool loop: ask the model, run its tool calls, and ask again until it answers without calls."""

from __future__ import annotations

from pydantic import PositiveInt

from ludus.agent import Agent, AgentConfig
from ludus.episode import Episode


class SimpleAgent(Agent):
    """Loops until a turn without function calls, an incomplete answer, or the step limit.

    Stop reasons: `completed`, `max_steps`, `no_answer` (two turns in a row held neither text nor a call), or the
    provider's reason for an incomplete answer (`max_output_tokens`, `content_filter`).
    """

    class Config(AgentConfig):
        """Settings of the tool loop."""

        #: the most model calls of a rollout
        max_steps: PositiveInt = 32

    config: Config
    continues = True

    async def act(self, episode: Episode) -> str:
        """Play one rollout."""
        before = episode.calls  # of a continued episode, whose last turn may hold only reasoning, or nothing
        silent = bool(before) and (before[-1]["items"] == 0 or episode.items[-1].get("type") == "reasoning")
        for _ in range(len(before), self.config.max_steps):
            response = await episode.ask()
            if response.incomplete_reason is not None:
                return response.incomplete_reason  # run no calls: the arguments may be cut off
            if calls := response.open_calls:
                await episode.run_tools(calls)
                silent = False
            elif response.has_message:
                return "completed"
            elif silent:
                return "no_answer"
            else:
                silent = True  # only reasoning: the model may answer if asked once more
        return "max_steps"
