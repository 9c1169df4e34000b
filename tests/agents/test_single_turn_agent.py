"""The single-turn agent asks the model once and runs none of its calls."""

from __future__ import annotations

from typing import Any

import pytest

import ludus
from ludus import Environment, Request, Resources, Response, ScriptedModel, tool
from ludus.agents.single_turn import SingleTurnAgent
from ludus.response import function_call, message, reasoning

ROW = {"responses_create_params": {"input": "Go."}}


class Lever(Resources):
    """A tool that must not run."""

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
def test_the_model_is_asked_once_and_no_call_is_run(items: list[dict[str, Any]]) -> None:
    rollout, asked = played(*items)
    assert (rollout.stop_reason, rollout.reward, len(asked)) == ("completed", len(items), 1)
    assert Lever.pulled == []


def test_the_model_is_offered_the_tools() -> None:
    _, asked = played(message("Done."))
    assert [entry["name"] for entry in asked[0].params["tools"]] == ["pull"]


def test_the_stop_reason_of_an_incomplete_answer_is_the_providers() -> None:
    cut = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    assert played(message("Do"), **cut)[0].stop_reason == "max_output_tokens"
