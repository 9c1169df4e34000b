"""A model that answers at once, for putting load on an environment without a policy."""

from __future__ import annotations

from typing import Any

from ludus.model import Model, Request
from ludus.qualify.dummies import dummy
from ludus.response import Item, Response, function_call, message

#: How many tools are called in a turn.
MAX_CALLS = 16

ANSWER = "A synthetic answer: \\boxed{A}"


class SyntheticModel(Model):
    """Calls every tool once with arguments that fit its schema, in each of the first `turns` turns, then answers with a
    fixed text.

    The rollouts show what an environment costs, and say nothing about rewards.
    """

    name = "scripted"
    concurrency = 64

    def __init__(self, turns: int = 1) -> None:
        self.config = self.Config()
        self._turns = turns

    async def respond(self, request: Request) -> Response:
        """Call the tools in the first turns, and answer in all others."""
        tools = request.params.get("tools") if request.turn < self._turns else None
        return Response.of(*synthetic_items(tools, request.turn), model=self.name)


def synthetic_items(tools: Any, turn: int) -> list[Item]:
    """The items of an answer: a call of each of the tools, or the text if there are none."""
    first = "call" if turn == 0 else f"call_{turn}"
    calls = [
        function_call(str(tool["name"]), dummy(tool.get("parameters")) or {}, call_id=f"{first}_{number}")
        for number, tool in enumerate(callable_tools(tools))
    ]
    return calls or [message(ANSWER, id=f"msg_{turn}")]


def callable_tools(tools: Any) -> list[dict[str, Any]]:
    """The tools that a synthetic turn calls."""
    return _functions(tools)[:MAX_CALLS]


def _functions(tools: Any) -> list[dict[str, Any]]:
    listed = tools if isinstance(tools, list) else []
    return [tool for tool in listed if isinstance(tool, dict) and isinstance(tool.get("name"), str)]
