"""The weather service: one call, one sentence, and rows with an empty tool list."""

from __future__ import annotations

import json
from typing import Any

import pytest

import ludus
from ludus import Environment, Failure, Response, ScriptedModel, Verdict
from ludus.environments.example_mcp_weather.resources import Weather
from ludus.response import function_call, function_call_output, message
from ludus.testing import judge, shared_rows

NAME = "example_mcp_weather"
ROW: dict[str, Any] = {
    "responses_create_params": {"input": "What is the weather in Bergen?", "tools": []},
    "verifier_metadata": {"expected_city": "Bergen"},
}
SENTENCE = "The weather in Bergen is sunny and 72 F."


def ask(city: str) -> dict[str, Any]:
    return {"call": "get_weather", "arguments": {"city": city}}


def play(*turns: Any, row: dict[str, Any] = ROW) -> ludus.Rollout:
    return ludus.collect(NAME, model=ScriptedModel(list(turns)), input=[row]).rollouts[0]


async def verdict_on(city: str, *texts: str, row: dict[str, Any] = ROW) -> Verdict:
    call = function_call("get_weather", {"city": city}, call_id="call_1")
    said = [message(text) for text in texts]
    verdict = await judge(NAME, row, Response.of(call, function_call_output("call_1", ""), *said))
    assert isinstance(verdict, Verdict)
    return verdict


def test_calling_the_tool_and_repeating_its_sentence_earns_the_reward() -> None:
    rollout = play(ask("Bergen"), SENTENCE)
    assert rollout.reward == 1.0
    assert rollout.response is not None
    [output] = [item["output"] for item in rollout.response.output if item["type"] == "function_call_output"]
    assert json.loads(output) == {"weather": SENTENCE}


def test_the_call_or_the_sentence_alone_earns_nothing() -> None:
    assert play(SENTENCE).reward == 0.0
    assert play(ask("Bergen"), "Sunny.").reward == 0.0
    assert play(ask("Oslo"), SENTENCE).reward == 0.0
    assert play(ask("Bergen"), "The weather in Oslo is sunny and 72 F.").reward == 0.0
    assert play(f"get_weather(Bergen): {SENTENCE}").reward == 0.0


@pytest.mark.parametrize("tools", [[], None])
def test_a_row_that_lists_no_tools_offers_the_environments_tools(tools: list[Any] | None) -> None:
    params: dict[str, Any] = {"input": "What is the weather in Bergen?"}
    offered: list[Any] = []

    def model(request: ludus.Request) -> Any:
        offered.append([entry["name"] for entry in request.params["tools"]])
        return ask("Bergen") if request.turn == 0 else SENTENCE

    row = {**ROW, "responses_create_params": params if tools is None else {**params, "tools": tools}}
    [rollout] = ludus.collect(NAME, model=ScriptedModel(model), input=[row]).rollouts
    assert rollout.reward == 1.0
    assert offered == [["get_weather"]] * 2


def test_a_row_that_lists_other_tools_offers_only_those() -> None:
    params = {"input": "What is the weather?", "tools": [{"type": "function", "name": "get_time", "parameters": {}}]}
    rollout = play(ask("Bergen"), SENTENCE, row={**ROW, "responses_create_params": params})
    assert rollout.reward == 0.0
    assert rollout.verdict is not None
    assert rollout.verdict.values["tool_call_seen"] is False


async def test_the_verdict_says_whether_the_call_or_the_sentence_is_missing() -> None:
    verdict = await verdict_on("Bergen", "Sunny.")
    assert verdict.values == {
        "expected_weather": SENTENCE,
        "tool_call_seen": True,
        "final_response_mentions_weather": False,
    }
    assert (await verdict_on("Oslo", SENTENCE)).values["final_response_mentions_weather"] is True


async def test_case_is_ignored_and_the_sentence_may_be_in_any_message() -> None:
    assert (await verdict_on("BERGEN", SENTENCE.upper())).reward == 1.0
    assert (await verdict_on("Bergen", f"I see: {SENTENCE}", "Anything else?")).reward == 1.0
    street = {**ROW, "verifier_metadata": {"expected_city": "Straße"}}
    assert (await verdict_on("STRASSE", "The weather in STRASSE is sunny and 72 F.", row=street)).reward == 1.0


async def test_a_sentence_split_over_two_messages_does_not_count() -> None:
    assert (await verdict_on("Bergen", SENTENCE[:20], SENTENCE[20:])).reward == 0.0


async def test_the_sentence_counts_only_in_an_assistant_message() -> None:
    call = function_call("get_weather", {"city": "Bergen"}, call_id="call_1")
    echoed = {"role": "user", "type": "message", "content": SENTENCE}
    verdict = await judge(NAME, ROW, Response.of(call, function_call_output("call_1", SENTENCE), echoed))
    assert isinstance(verdict, Verdict)
    assert verdict.reward == 0.0


@pytest.mark.parametrize("arguments", ["", "{}", "[]", "null", "not JSON", '{"city": 5}', '{"town": "Bergen"}'])
async def test_a_wrong_call_gets_an_error_and_does_not_count(arguments: str) -> None:
    session = Weather()
    output = json.loads(await session.call("get_weather", arguments))
    assert "detail" in output or "error" in output
    assert session.asked_about == set()


@pytest.mark.parametrize("city", ["", "x" * 100_000, "{0.__class__}", "Ber\x00gen", "\\", "'; DROP TABLE--"])
async def test_any_text_can_be_a_city(city: str) -> None:
    row = {**ROW, "verifier_metadata": {"expected_city": city}}
    assert (await verdict_on(city, f"The weather in {city} is sunny and 72 F.", row=row)).reward == 1.0
    assert (await verdict_on(city, "Sunny.", row=row)).reward == 0.0


async def test_a_row_without_a_city_means_paris() -> None:
    row = {"responses_create_params": {"input": "What is the weather in Paris?", "tools": []}}
    assert (await verdict_on("Paris", "The weather in Paris is sunny and 72 F.", row=row)).reward == 1.0


@pytest.mark.parametrize("metadata", [{"expected_city": 5}, {"expected_city": None}, "Paris", []])
async def test_a_row_whose_city_is_not_a_text_is_refused(metadata: Any) -> None:
    verdict = await judge(NAME, {**ROW, "verifier_metadata": metadata}, SENTENCE)
    assert isinstance(verdict, Failure)
    assert verdict.kind == "bad_row"


def test_rollouts_at_the_same_time_do_not_see_each_other() -> None:
    def model(request: ludus.Request) -> Any:
        asks = "Bergen" in str(request.input[0])
        return ask("Bergen") if asks and request.turn == 0 else SENTENCE

    other = {**ROW, "responses_create_params": {"input": "Guess.", "tools": []}}
    result = ludus.collect(NAME, model=ScriptedModel(model), input=[ROW, other] * 20, concurrency=40)
    rewards = {str(rollout.job.task.input[0]["content"]): rollout.reward for rollout in result.rollouts}
    assert rewards == {"What is the weather in Bergen?": 1.0, "Guess.": 0.0}


def test_the_example_rows_and_the_public_rows_can_be_solved() -> None:
    shipped = [json.loads(line) for line in Environment.load(NAME).dataset().read_text().splitlines()]
    solve_all(shipped)
    solve_all(list(shared_rows(NAME)))


def solve_all(rows: list[dict[str, Any]]) -> None:
    assert len(rows) >= 5
    for row in rows:
        city = row["verifier_metadata"]["expected_city"]
        rollout = play(ask(city), f"The weather in {city} is sunny and 72 F.", row=row)
        assert rollout.reward == 1.0
