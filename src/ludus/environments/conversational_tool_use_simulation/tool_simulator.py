"""A model that plays the tools: it sees the policy, the customer and all earlier results, and invents the next result.

A result that is not JSON of the tool's `returns` schema is retried. Without a model, every result is a fixed text.
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
        self._read = 0
        self._new_lines: list[str] = []
        self._calls: dict[str, Item] = {}
        self._requests = 0

    def copy(self) -> Self:
        """A copy with the same history, for a forked conversation."""
        twin = copy.copy(self)
        twin._history, twin._new_lines, twin._calls = self._history.since(0), list(self._new_lines), dict(self._calls)
        return twin

    async def run(self, items: list[Item], name: str, arguments: str) -> str | None:
        """The tool's result; None if no attempt fits the schema."""
        if self._model is None:
            return encode({"output": f"Simulated result for {name}."}).decode()
        self._read_new(items)
        self._call(name, arguments)
        for _ in range(self._attempts):
            text = await self._reply()
            if text and await problem_with(text, self._tools[name].returns) is None:
                self._history.append({"role": "assistant", "content": text})
                return text
        return None

    def _read_new(self, items: list[Item]) -> None:
        """Read the items since the last call. The first call also reads the results of the row's input."""
        for item in items[self._read :]:
            kind, name = item.get("type"), str(item.get("call_id"))
            if kind == "function_call":
                self._calls[name] = item
            elif kind == "function_call_output" and self._read == 0 and name in self._calls:
                call = self._calls[name]
                self._call(call["name"], call["arguments"])
                self._history.append({"role": "assistant", "content": str(item.get("output"))})
            elif is_message(item) or item.get("role") == "user":
                who = "Representative" if is_message(item) else "Customer"
                self._new_lines.append(f"{who}: {texts_of(item)}")
        self._read = len(items)

    def _call(self, name: str, arguments: str) -> None:
        pending = {"since_the_last_result": self._new_lines, "call": name, "arguments": arguments}
        self._history.append({"role": "user", "content": encode(pending).decode()})
        self._new_lines = []

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
