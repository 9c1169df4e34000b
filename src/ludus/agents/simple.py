"""The tool loop: ask, run what was called, ask again, until the model has answered."""

from __future__ import annotations

from pydantic import PositiveInt

from ludus.agent import Agent, AgentConfig
from ludus.episode import Episode


class SimpleAgent(Agent):
    """Loops until a turn without function calls, an incomplete answer, or the step limit.

    Stop reasons: `completed`, `max_steps`, `no_answer` (two turns in a row held neither text nor a call), or
    whatever the provider gave for an incomplete answer (`max_output_tokens`, `content_filter`).
    """

    class Config(AgentConfig):
        """Settings of the tool loop."""

        max_steps: PositiveInt = 32

    config: Config
    continues = True

    async def act(self, episode: Episode) -> str:
        """Play one rollout."""
        silent = _went_silent(episode)
        for _ in range(len(episode.calls), self.config.max_steps):
            response = await episode.ask()
            if response.incomplete_reason is not None:
                return response.incomplete_reason  # calls of a cut answer may be cut themselves: none is run
            if calls := response.function_calls:
                await episode.run_tools(calls)
                silent = False
            elif response.has_message:
                return "completed"
            elif silent:
                return "no_answer"
            else:
                silent = True  # only reasoning: it may answer if asked once more
        return "max_steps"


def _went_silent(episode: Episode) -> bool:
    """Whether an episode that goes on from the middle stands after a turn that held only reasoning, or nothing."""
    calls = episode.calls
    return bool(calls) and (calls[-1]["items"] == 0 or episode.items[-1].get("type") == "reasoning")
