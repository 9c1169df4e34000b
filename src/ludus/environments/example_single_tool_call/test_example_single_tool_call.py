"""One tool and a constant reward."""

from __future__ import annotations

import json
from typing import Any

import pytest

import ludus
from ludus import Response, ScriptedModel
from ludus.environments.example_single_tool_call.resources import Weather
from ludus.testing import judge, shared_rows

NAME = "example_single_tool_call"
ROW = {"responses_create_params": {"input": "Is it cold in Bergen?"}}


def play(*turns: Any) -> ludus.Rollout:
    return ludus.collect(NAME, model=ScriptedModel(list(turns)), input=[ROW]).rollouts[0]


def test_a_call_returns_the_weather_and_the_rollout_earns_1() -> None:
    rollout = play({"call": "get_weather", "arguments": {"city": "Bergen"}}, "Yes.")
    assert rollout.reward == 1.0
    assert rollout.response is not None
    [output] = [item["output"] for item in rollout.response.output if item["type"] == "function_call_output"]
    assert json.loads(output) == {"city": "Bergen", "weather_description": "The weather in Bergen is cold."}


def test_an_empty_answer_earns_1_too() -> None:
    assert play("").reward == 1.0
    assert play({"items": []}).reward == 1.0


async def test_every_response_earns_1() -> None:
    for response in (Response.of(), Response({}), Response.of(status="incomplete")):
        verdict = await judge(NAME, ROW, response)
        assert isinstance(verdict, ludus.Verdict)
        assert verdict.reward == 1.0


@pytest.mark.parametrize("arguments", ["", "{}", "[]", "null", "not JSON", '{"city": 5}', '{"town": "Bergen"}'])
async def test_a_wrong_call_returns_an_error_to_the_model(arguments: str) -> None:
    output = json.loads(await Weather().call("get_weather", arguments))
    assert "detail" in output or "error" in output


def test_the_example_rows_can_be_played() -> None:
    result = ludus.collect(NAME, model=ScriptedModel([{"call": "get_weather", "arguments": {"city": "Oslo"}}, "Cold."]))
    assert len(result.rollouts) >= 5
    assert all(rollout.reward == 1.0 for rollout in result.rollouts)


def test_public_rows_load() -> None:
    assert [Weather.Task.model_validate(row) for row in shared_rows(NAME)]
