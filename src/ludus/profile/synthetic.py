"""A model that answers at once, for putting load on an environment without a policy."""

from __future__ import annotations

from typing import Any

from ludus.model import Model, Request
from ludus.qualify.dummies import dummy
from ludus.response import Response, function_call, message

#: How many tools are called in the first turn.
MAX_CALLS = 16

ANSWER = "A synthetic answer: \\boxed{A}"


class SyntheticModel(Model):
    """Calls every tool once with arguments that fit its schema, then answers with a fixed text.

    The rollouts show what an environment costs, and say nothing about rewards.
    """

    name = "scripted"
    concurrency = 64

    def __init__(self) -> None:
        self.config = self.Config()

    async def respond(self, request: Request) -> Response:
        """Call the tools in the first turn, and answer in all others."""
        tools = request.params.get("tools") if request.turn == 0 else None
        calls = [
            function_call(str(tool["name"]), dummy(tool.get("parameters")) or {}, call_id=f"call_{number}")
            for number, tool in enumerate(_functions(tools)[:MAX_CALLS])
        ]
        return Response.of(*(calls or [message(ANSWER, id=f"msg_{request.turn}")]), model=self.name)


def _functions(tools: Any) -> list[dict[str, Any]]:
    listed = tools if isinstance(tools, list) else []
    return [tool for tool in listed if isinstance(tool, dict) and isinstance(tool.get("name"), str)]
