"""One tool call, rewarded in three parts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ludus
from ludus import Environment, Failure, Response, Rollout, ScriptedModel, Verdict
from ludus.environments.example_tool_call_multireward.resources import MultiReward, arguments_of, same
from ludus.response import function_call, message, reasoning, texts_of
from ludus.testing import disagreements, judge, shared_rows

NAME = "example_tool_call_multireward"


def offered(name: str, *required: str) -> dict[str, Any]:
    properties = {parameter: {"type": "string"} for parameter in required}
    return {"type": "function", "name": name, "parameters": {"properties": properties, "required": list(required)}}


TOOLS = [offered("get_weather", "city"), offered("book", "place", "people")]
ROW: dict[str, Any] = {
    "responses_create_params": {"input": "How is Oslo?", "tools": TOOLS},
    "expected_call": {"name": "get_weather", "arguments": {"city": "Oslo"}},
}


def call(arguments: Any, name: str = "get_weather", number: int = 1) -> dict[str, Any]:
    return function_call(name, arguments, call_id=f"call_{number}")


async def parts(*items: dict[str, Any], row: dict[str, Any] = ROW, **settings: Any) -> tuple[float, ...]:
    """The components `correctness`, `schema_valid` and `format` of a response."""
    verdict = await judge(NAME, row, Response.of(*items), **settings)
    assert isinstance(verdict, Verdict), verdict
    assert verdict.reward == sum(verdict.components.values())
    assert {key: verdict.values[key] for key in verdict.components} == verdict.components
    return tuple(verdict.components[name] for name in ("correctness", "schema_valid", "format"))


async def test_exactly_the_expected_call_earns_all_components() -> None:
    assert await parts(call({"city": "Oslo"})) == (1, 1, 1)
    assert await parts(call({"city": "Oslo", "unit": "C"})) == (1, 1, 1)
    assert await parts(reasoning("Hm."), call({"city": "Oslo"})) == (1, 1, 1)


def test_the_full_reward_can_be_earned() -> None:
    rollout: Rollout = ludus.collect(
        NAME, model=ScriptedModel([{"call": "get_weather", "arguments": {"city": "Oslo"}}, "Sunny."]), input=[ROW]
    ).rollouts[0]
    assert rollout.reward == 3.0
    assert rollout.response is not None
    assert json.loads(rollout.response.output[-1]["output"])["weather_description"] == "The weather in Oslo is sunny."
    later = ludus.collect(
        NAME,
        model=ScriptedModel([{"call": "get_weather", "arguments": {"city": "Oslo"}}, "Sunny."]),
        input=[ROW],
        settings={"agent.max_steps": 4},
    ).rollouts[0]
    assert later.reward == 2.0


async def test_each_component_is_earned_separately() -> None:
    assert await parts(call({"city": "Rome"})) == (0, 1, 1)
    assert await parts(call({})) == (0, 0, 1)
    assert await parts(message("Sunny."), call({"city": "Oslo"})) == (1, 1, 0)
    assert await parts(message(""), call({"city": "Oslo"})) == (1, 1, 0)
    assert await parts(call({"city": "Rome"}), call({"city": "Oslo"}, number=2)) == (1, 1, 0)
    assert await parts(call({"place": "x"}, "book"), call({"city": "Oslo"}, number=2)) == (1, 0, 0)
    assert await parts(message("get_weather(city=Oslo)")) == (0, 0, 0)
    assert await parts() == (0, 0, 0)


@pytest.mark.parametrize("city", ["oslo", " Oslo", "", None, 1, ["Oslo"], {"city": "Oslo"}])
async def test_an_argument_must_be_exactly_the_expected_one(city: Any) -> None:
    assert (await parts(call({"city": city})))[0] == 0


@pytest.mark.parametrize("arguments", ["", "oops", '["Oslo"]', '"Oslo"', "null", '{"city": "Oslo"', "[" * 5000])
async def test_arguments_that_are_not_an_object_earn_only_the_format(arguments: str) -> None:
    assert await parts(call(arguments)) == (0, 0, 1)
    assert await parts(call(arguments), compat=True) == (0, 0, 1)


async def test_an_unknown_tool_fits_no_schema_except_in_compat() -> None:
    for arguments in ({}, {"city": "Oslo"}):
        assert await parts(call(arguments, "getWeather")) == (0, 0, 1)
        assert await parts(call(arguments, "getWeather"), compat=True) == (0, 1, 1)


async def test_arguments_that_are_not_json_are_wrong_except_in_compat() -> None:
    row = {**ROW, "expected_call": {"name": "get_weather"}}
    assert await parts(call("oops"), row=row) == (0, 0, 1)
    assert await parts(call("oops"), row=row, compat=True) == (1, 0, 1)
    assert await parts(call({"city": "Rome"}), row=row) == (1, 1, 1)


async def test_true_is_not_one_except_in_compat() -> None:
    row = {**ROW, "expected_call": {"name": "book", "arguments": {"place": "Nord", "people": 1}}}
    assert await parts(call({"place": "Nord", "people": True}, "book"), row=row) == (0, 1, 1)
    assert await parts(call({"place": "Nord", "people": True}, "book"), row=row, compat=True) == (1, 1, 1)
    assert await parts(call({"place": "Nord", "people": 1.0}, "book"), row=row) == (1, 1, 1)


async def test_a_row_without_an_expected_call_earns_only_schema_and_format() -> None:
    row = {"responses_create_params": ROW["responses_create_params"]}
    for compat in (False, True):
        assert await parts(call({"city": "Oslo"}), row=row, compat=compat) == (0, 1, 1)


@pytest.mark.parametrize("params", [{}, {"tools": []}, {"tools": None}])
@pytest.mark.parametrize("compat", [False, True])
async def test_a_row_that_lists_no_tools_requires_no_arguments(params: dict[str, Any], compat: bool) -> None:
    row = {**ROW, "responses_create_params": {"input": "How is Oslo?", **params}}
    assert await parts(call({"city": "Oslo"}), row=row, compat=compat) == (1, 1, 1)
    assert await parts(call({}), row=row, compat=compat) == (0, 1, 1)
    assert await parts(call({}, "other"), row=row, compat=compat) == (0, 1, 1)
    assert await parts(call("oops"), row=row, compat=compat) == (0, 0, 1)
    assert await parts(row=row, compat=compat) == (0, 0, 0)


names = st.sampled_from(["get_weather", "book", "other"])
keys = st.lists(st.sampled_from(["city", "place", "people"]), unique=True)


@given(st.lists(st.tuples(names, keys), max_size=3), names, keys)
async def test_a_call_is_complete_if_it_has_what_its_listed_tool_requires(
    listed: list[tuple[str, list[str]]], name: str, given_keys: list[str]
) -> None:
    tools = [offered(tool, *required) for tool, required in listed]
    row = {**ROW, "responses_create_params": {"input": "How is Oslo?", "tools": tools}}
    required = next((required for tool, required in listed if tool == name), None)
    complete = not listed or (required is not None and set(required) <= set(given_keys))
    assert (await parts(call(dict.fromkeys(given_keys, "x"), name), row=row))[1] == float(complete)


async def test_a_row_without_tools_offers_the_environments_tools() -> None:
    row = {**ROW, "responses_create_params": {"input": "How is Oslo?"}}
    script = ScriptedModel([{"call": "get_weather", "arguments": {"city": "Oslo"}}])
    (rollout,) = (await ludus.collect_async(NAME, model=script, input=[row])).rollouts
    assert rollout.reward == 3.0
    assert rollout.response is not None
    assert "sunny" in rollout.response.output[-1]["output"]


async def test_a_bad_row_is_refused() -> None:
    failure = await judge(NAME, {**ROW, "expected_call": "get_weather"}, "hi")
    assert isinstance(failure, Failure)
    assert failure.kind == "bad_row"


def test_the_means_of_the_components_are_metrics() -> None:
    answers = ScriptedModel(lambda request: {"call": "get_weather", "arguments": {"city": "Bergen"}})
    metrics = ludus.collect(NAME, model=answers).metrics
    assert metrics["reward"]["components"] == {"correctness": 1 / 8, "schema_valid": 1.0, "format": 1.0}
    assert metrics["reward"]["mean"] == pytest.approx(2.125)
    assert metrics["reward"]["by_turn"] == []


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
)


@given(_JSON, _JSON)
def test_two_values_are_the_same_exactly_if_their_json_is(left: Any, right: Any) -> None:
    assert same(left, right) == (json.dumps(left, sort_keys=True) == json.dumps(right, sort_keys=True))


@given(st.text())
def test_any_text_as_arguments_gives_an_object_or_none(arguments: str) -> None:
    parsed = arguments_of(call(arguments))
    assert parsed is None or isinstance(parsed, dict)


def test_the_example_rows_can_be_solved() -> None:
    lines = map(json.loads, Environment.load(NAME).dataset().read_text(encoding="utf-8").splitlines())
    expected = {line["responses_create_params"]["input"][-1]["content"]: line["expected_call"] for line in lines}

    def oracle(request: Any) -> dict[str, Any]:
        right = expected[texts_of(request.input[-1])]
        return {"call": right["name"], "arguments": right["arguments"]}

    rollouts = ludus.collect(NAME, model=ScriptedModel(oracle)).rollouts
    assert len(rollouts) >= 5
    assert all(rollout.reward == 3.0 for rollout in rollouts)


def test_public_rows_load() -> None:
    assert [MultiReward.Task.model_validate(row) for row in shared_rows(NAME)]


async def test_verdicts_and_outputs_agree_with_the_reference() -> None:
    assert await disagreements(NAME) == []


async def test_compat_agrees_with_the_reference_also_in_its_mistakes() -> None:
    assert await disagreements(NAME, compat=True) == []
