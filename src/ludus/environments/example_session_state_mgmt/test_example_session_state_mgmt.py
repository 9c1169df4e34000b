"""The counter: only its final value counts, not what the model says."""

from __future__ import annotations

import json
from typing import Any

import pytest

import ludus
from ludus import Environment, Failure, Request, ScriptedModel, Verdict
from ludus.environments.example_session_state_mgmt.resources import Counter
from ludus.response import function_call, function_call_output, texts_of
from ludus.testing import disagreements, judge, shared_rows

NAME = "example_session_state_mgmt"
ROW = {"responses_create_params": {"input": "Add 3 to the counter."}, "initial_count": 2, "expected_count": 5}


def play(*turns: Any, row: dict[str, Any] = ROW) -> ludus.Rollout:
    return ludus.collect(NAME, model=ScriptedModel(list(turns)), input=[row]).rollouts[0]


def add(count: Any) -> dict[str, Any]:
    return {"call": "increment_counter", "arguments": {"count": count}}


async def reward_after(arguments: str, row: dict[str, Any] = ROW, **settings: Any) -> float | None:
    """The reward after one increment, or None if the row was refused."""
    call = function_call("increment_counter", arguments, call_id="call_1")
    verdict = await judge(NAME, row, ludus.Response.of(call, function_call_output("call_1", "")), **settings)
    return verdict.reward if isinstance(verdict, Verdict) else None


def test_reaching_the_count_with_any_calls_earns_the_reward() -> None:
    assert play(add(3), "Done.").reward == 1.0
    assert play(add(1), add(2), "").reward == 1.0
    assert play({"calls": [{"name": "increment_counter", "arguments": {"count": 1}}] * 3}, "Done.").reward == 1.0
    assert play(add(10), add(-7), "Done.").reward == 1.0


def test_missing_the_count_earns_nothing_whatever_the_model_claims() -> None:
    assert play("The counter is at 5.").reward == 0.0
    assert play(add(2), "The counter is at 5.").reward == 0.0
    assert play(add(4), "Done.").reward == 0.0
    assert play({"call": "get_counter_value"}, "Done.").reward == 0.0


def test_the_model_sees_the_results_of_its_calls() -> None:
    rollout = play(add(3), {"call": "get_counter_value"}, "Done.")
    assert rollout.response is not None
    outputs = [json.loads(item["output"]) for item in rollout.response.output if "output" in item]
    assert outputs == [{"success": True}, {"count": 5}]


def test_rollouts_at_the_same_time_do_not_see_each_other() -> None:
    result = ludus.collect(NAME, model=ScriptedModel([add(3), "Done."]), input=[ROW], repeats=50, concurrency=50)
    assert [rollout.reward for rollout in result.rollouts] == [1.0] * 50


@pytest.mark.parametrize("arguments", ["", "{}", "3", "[3]", "not JSON", '{"count": 1.5}', '{"count": null}'])
async def test_a_malformed_call_changes_nothing(arguments: str) -> None:
    assert await reward_after(arguments) == 0.0


async def test_a_count_as_text_is_refused_except_in_compat() -> None:
    assert await reward_after('{"count": "3"}') == 0.0
    assert await reward_after('{"count": "3"}', compat=True) == 1.0


@pytest.mark.parametrize("field", ["initial_count", "expected_count"])
async def test_a_row_with_text_for_a_count_is_refused_except_in_compat(field: str) -> None:
    row = {**ROW, field: str(ROW[field])}
    with pytest.raises(ludus.UserError, match=field):
        play("Done.", row=row)
    assert await reward_after('{"count": 3}', row) is None
    assert await reward_after('{"count": 3}', row, compat=True) == 1.0


async def test_a_row_without_counts_is_refused() -> None:
    verdict = await judge(NAME, {"responses_create_params": {"input": "Add 3."}}, "Done.")
    assert isinstance(verdict, Failure)
    assert (verdict.kind, verdict.cause) == ("bad_row", "initial_count: Field required")


async def test_a_rollout_without_calls_earns_its_reward_if_the_count_is_right() -> None:
    verdict = await judge(NAME, {**ROW, "expected_count": 2}, "Nothing to do.")
    assert isinstance(verdict, Verdict)
    assert verdict.reward == 1.0


def test_the_example_rows_can_be_solved() -> None:
    rows = Environment.load(NAME).dataset().read_bytes().splitlines()
    tasks = {texts_of(task.input[-1]): task for task in map(Counter.Task.model_validate_json, rows)}

    def oracle(request: Request) -> Any:
        if request.turn:
            return "Done."
        asked = next(texts_of(item) for item in reversed(request.input) if item.get("role") == "user")
        return add(tasks[asked].expected_count - tasks[asked].initial_count)

    result = ludus.collect(NAME, model=ScriptedModel(oracle))
    assert len(result.rollouts) >= 5
    assert all(rollout.reward == 1.0 for rollout in result.rollouts)


def test_public_rows_load() -> None:
    assert [Counter.Task.model_validate(row) for row in shared_rows(NAME)]


async def test_verdicts_and_outputs_agree_with_the_reference() -> None:
    assert await disagreements(NAME) == []


async def test_compat_agrees_with_the_reference_also_in_its_mistakes() -> None:
    assert await disagreements(NAME, compat=True) == []
