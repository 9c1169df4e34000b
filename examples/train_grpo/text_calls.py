"""An agent that shows the tools as text and reads calls from text, for models without tool calling.

One answer is one call, written as `add number=4`, or the word DONE. The result of a call is the user's next message. A
model that was trained under the tool loop (`simple`) meets other prompts, another form of calls and another way to stop
here: `overlap.py --test-agents` measures what carries over.
"""

from __future__ import annotations

from typing import Any

from pydantic import PositiveInt

from ludus.agent import Agent, AgentConfig
from ludus.agents.typed_calls import Call, read_turn, signature
from ludus.episode import Episode
from ludus.response import Item


class TextCalls(Agent):
    """Loops until DONE or the step limit. An answer that is no call is answered with the form of one."""

    class Config(AgentConfig):
        """Settings of the loop."""

        #: the most model calls of a rollout
        max_steps: PositiveInt = 8

    config: Config

    async def act(self, episode: Episode) -> str:
        """Play one rollout."""
        tools: list[dict[str, Any]] = episode.params.get("tools") or []
        how = "\n".join(f"{signature(tool)}: {tool.get('description', '')}" for tool in tools)
        how = (
            f"Your tools:\n{how}\nAnswer with one call and nothing else, such as: add number=4\nAnswer DONE at the end."
        )
        episode.say(_user(how))
        for _ in range(self.config.max_steps):
            answer = (await episode.ask(tools=[])).output_text.strip()
            if answer == "DONE":
                return "completed"
            call = read_turn(answer, tools)
            if isinstance(call, Call):
                work = episode.call_tool(call.name, call.arguments)
                episode.say(_user(await episode.step("tool", episode.limits.tool, work, f"tool `{call.name}`")))
            else:
                episode.say(_user(f"That is no call. {how}"))
        return "max_steps"


def _user(text: str) -> Item:
    return {"role": "user", "content": text}
