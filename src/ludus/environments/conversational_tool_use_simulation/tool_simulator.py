"""A model that plays the tools: it is told the policy, the customer and every earlier result, and makes up the next.

What it writes must be JSON of the tool's `returns`, or it is asked again. Without a model the result is a fixed text.
"""

from __future__ import annotations

import copy
from typing import Any, Self

from ludus.environments.conversational_tool_use_simulation import prompts
from ludus.environments.conversational_tool_use_simulation.checking import problem_with
from ludus.environments.conversational_tool_use_simulation.rows import ConversationTask
from ludus.model import Model, Request
from ludus.response import Item, Items, is_message, texts_of
from ludus.runtime.encoding import encode
from ludus.task import derive_seed


class ToolSimulator:
    """The tools of one conversation."""

    def __init__(
        self, task: ConversationTask, model: Model | None, params: dict[str, Any], attempts: int, seed: int
    ) -> None:
        self._tools = {tool.name: tool for tool in task.definitions}
        self._model, self._params, self._attempts, self._seed = model, params, attempts, seed
        self._history = Items([{"role": "system", "content": _system(task)}])
        self._heard = 0
        self._said: list[str] = []
        self._calls: dict[str, Item] = {}
        self._requests = 0

    def copy(self) -> Self:
        """The same tools for another conversation that has come as far as this one."""
        twin = copy.copy(self)
        twin._history, twin._said, twin._calls = self._history.since(0), list(self._said), dict(self._calls)
        return twin

    async def run(self, items: list[Item], name: str, arguments: str) -> str | None:
        """What the tool returns; None where no attempt fits its schema."""
        if self._model is None:
            return encode({"output": f"Simulated result for {name}."}).decode()
        self._listen(items)
        self._call(name, arguments)
        for _ in range(self._attempts):
            text = await self._reply()
            if text and await problem_with(text, self._tools[name].returns) is None:
                self._history.append({"role": "assistant", "content": text})
                return text
        return None

    def _listen(self, items: list[Item]) -> None:
        """Take in what was said since the last call, and results that were there before the conversation began."""
        for item in items[self._heard :]:
            kind, name = item.get("type"), str(item.get("call_id"))
            if kind == "function_call":
                self._calls[name] = item
            elif kind == "function_call_output" and self._heard == 0 and name in self._calls:
                call = self._calls[name]
                self._call(call["name"], call["arguments"])
                self._history.append({"role": "assistant", "content": str(item.get("output"))})
            elif is_message(item) or item.get("role") == "user":
                who = "Representative" if is_message(item) else "Customer"
                self._said.append(f"{who}: {texts_of(item)}")
        self._heard = len(items)

    def _call(self, name: str, arguments: str) -> None:
        pending = {"since_the_last_result": self._said, "call": name, "arguments": arguments}
        self._history.append({"role": "user", "content": encode(pending).decode()})
        self._said = []

    async def _reply(self) -> str:
        assert self._model is not None
        seed = derive_seed(self._seed, "tool", self._requests)
        request = Request(self._history, seed=seed, turn=self._requests, params=self._params)
        self._requests += 1
        response = await self._model.respond(request)
        return response.output_text.strip() if response.incomplete_reason is None else ""


def _system(task: ConversationTask) -> str:
    tools = [
        {
            "name": tool.name,
            "description": tool.description or tool.doc,
            "parameters": tool.arguments,
            "returns": tool.returns,
        }
        for tool in task.definitions
    ]
    sections = {
        "Policy": task.policy,
        "The customer": encode(task.customer_scenario.model_dump()).decode(),
        "Tools": "\n".join(encode(tool).decode() for tool in tools),
    }
    return "\n\n".join([prompts.TOOLS, *(f"# {title}\n{text}" for title, text in sections.items())])
