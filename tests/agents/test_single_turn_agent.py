"""One answer: asked for once, and none of its calls run."""

from __future__ import annotations

from typing import Any

import pytest

import ludus
from ludus import Environment, Request, Resources, Response, ScriptedModel, tool
from ludus.agents.single_turn import SingleTurnAgent
from ludus.response import function_call, message, reasoning

ROW = {"responses_create_params": {"input": "Go."}}


class Lever(Resources):
    """A tool that must not be pulled."""

    pulled: list[str] = []

    @tool
    async def pull(self) -> str:
        """Pull it."""
        self.pulled.append("pulled")
        return "done"

    async def verify(self, task: Any, response: Response) -> float:
        return float(len(response.output))


def played(*items: dict[str, Any], **fields: Any) -> tuple[ludus.Rollout, list[Request]]:
    asked: list[Request] = []

    def answer(request: Request) -> Response:
        asked.append(request)
        return Response.of(*items, **fields)

    environment = Environment.load(Lever)
    environment.agent = SingleTurnAgent()
    return ludus.collect(environment, model=ScriptedModel(answer), input=[ROW]).rollouts[0], asked


@pytest.mark.parametrize(
    "items",
    [
        [message("Done.")],
        [function_call("pull", {}, call_id="c1")],
        [message("First"), function_call("pull", {}, call_id="c1"), function_call("pull", {}, call_id="c2")],
        [reasoning("Hm.")],
        [],
    ],
)
def test_the_model_is_asked_once_and_nothing_is_run(items: list[dict[str, Any]]) -> None:
    rollout, asked = played(*items)
    assert (rollout.stop_reason, rollout.reward, len(asked)) == ("completed", len(items), 1)
    assert Lever.pulled == []


def test_the_tools_are_offered_all_the_same() -> None:
    _, asked = played(message("Done."))
    assert [entry["name"] for entry in asked[0].params["tools"]] == ["pull"]


def test_an_incomplete_answer_says_why() -> None:
    cut = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    assert played(message("Do"), **cut)[0].stop_reason == "max_output_tokens"
