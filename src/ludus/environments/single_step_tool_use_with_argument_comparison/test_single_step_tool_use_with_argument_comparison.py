"""The next step: calls, batches of calls and messages, compared with the expected step."""

from __future__ import annotations

import json
from typing import Any

import pytest

import ludus
from ludus import Failure, Outcome, Request, Response, ScriptedModel, Verdict
from ludus.environments.single_step_tool_use_with_argument_comparison.matching import FREE_CALLS
from ludus.environments.single_step_tool_use_with_argument_comparison.resources import SingleStepToolUse
from ludus.response import function_call, message, reasoning
from ludus.testing import disagreements, judge, shared_rows

NAME = "single_step_tool_use_with_argument_comparison"
TOOLS = [{"type": "function", "name": name, "parameters": {"type": "object"}} for name in ("open_door", "ring")]


def call(name: str = "open_door", **arguments: Any) -> dict[str, Any]:
    return {"type": "function_call", "name": name, "arguments": json.dumps(arguments)}


def row(*calls: dict[str, Any]) -> dict[str, Any]:
    expected: dict[str, Any] = {"type": "function_call_batch", "calls": list(calls)}
    if not calls:
        expected = {"type": "message", "content": "Which door?"}
    elif len(calls) == 1:
        expected = calls[0]
    return {"responses_create_params": {"input": "Let me in.", "tools": TOOLS}, "expected_action": expected}


def answer(*items: str | dict[str, Any]) -> Response:
    return Response.of(
        *(
            message(item)
            if isinstance(item, str)
            else function_call(item["name"], item["arguments"], call_id=f"c{number}")
            for number, item in enumerate(items)
        )
    )


async def graded(task: dict[str, Any], step: Response, *, compat: bool = False, **comparator: Any) -> Verdict:
    verdict = await judge(NAME, task, step, compat=compat, tool_call_comparator_config=comparator)
    assert isinstance(verdict, Verdict), verdict
    return verdict


ONE, TWO, THREE = call(n=1), call(n=2), call(n=3)


def test_the_expected_call_earns_the_reward_and_no_tool_is_run() -> None:
    for step, reward in [(answer(ONE), 1.0), (answer(TWO), 0.0), (answer("Which one?"), 0.0)]:
        rollout = ludus.collect(NAME, model=ScriptedModel([step]), input=[row(ONE)]).rollouts[0]
        assert (rollout.outcome, rollout.reward, rollout.stop_reason) == (Outcome.COMPLETED, reward, "completed")
        assert len(rollout.calls) == 1


def test_the_shipped_rows_can_be_solved() -> None:
    environment = ludus.Environment.load(NAME)
    rows = [json.loads(line) for line in environment.dataset().read_bytes().splitlines()]
    expected = {json.dumps(task["responses_create_params"]["input"]): task["expected_action"] for task in rows}

    def oracle(request: Request) -> Response:
        action = expected[json.dumps(list(request.input))]
        return answer(*action.get("calls", [action.get("content") or action]))

    result = ludus.collect(NAME, model=ScriptedModel(oracle))
    assert len(result.rollouts) >= 5
    assert [rollout.reward for rollout in result.rollouts] == [1.0] * len(rows)


@pytest.mark.parametrize(
    ("task", "step", "reward", "reason"),
    [
        (row(), answer("The left one?"), 1.0, "message"),
        (row(), answer("Opening.", ONE), 0.0, "unexpected_call"),
        (row(), Response.of(reasoning("Hm.")), 0.0, "nothing"),
        (row(), Response({}), 0.0, "nothing"),
        (row(ONE), Response.of(), 0.0, "nothing"),
        (row(ONE), answer("Done."), 0.0, "unexpected_message"),
        (row(ONE), answer("Opening.", ONE), 1.0, "match"),
        (row(ONE), answer(call("ring", n=1)), 0.0, "tool"),
        (row(ONE), answer(call("Open_door", n=1)), 0.0, "tool"),
        (row(ONE), answer({"name": "open_door", "arguments": "{n: 1}"}), 0.0, "arguments"),
        (row(ONE), answer(call(n=1, m=1)), 0.0, "keys"),
        (row(ONE), answer(call(n="1")), 0.0, "type"),
        (row(call(l=[1, 2])), answer(call(l=[1])), 0.0, "length"),
        (row(ONE), answer(TWO), 0.0, "value"),
        (row(ONE), answer(TWO, ONE), 1.0, "match"),
        (row(ONE), answer(call("ring"), TWO), 0.0, "value"),
        (row(ONE, TWO), answer(TWO, ONE), 1.0, "match"),
        (row(ONE, TWO), answer(TWO, THREE, ONE), 1.0, "match"),
        (row(ONE, TWO), answer(ONE), 0.0, "count"),
        (row(ONE, TWO), answer(ONE, THREE), 0.0, "value"),
        (row(ONE, ONE), answer(ONE, TWO), 0.0, "count"),
    ],
)
async def test_a_step_is_compared_with_the_expected_step(
    task: dict[str, Any], step: Response, reward: float, reason: str
) -> None:
    verdict = await graded(task, step)
    assert (verdict.reward, verdict.values["reason"]) == (reward, reason)
    assert (await graded(task, step, compat=True)).reward == reward


async def test_the_pairing_of_calls_is_a_maximum_matching() -> None:
    texts = [call("ring", text="walk the dog and the cat"), call("ring", text="walk the dog")]
    step = answer(call("ring", text="walk the dog"), call("ring", text="feed the cat and the bird"))
    assert (await graded(row(*texts), step)).reward == 1.0


@pytest.mark.parametrize(
    ("mode", "subset", "superset", "calls", "reward"),
    [
        ("binary_strict", False, False, [ONE, TWO], 1.0),
        ("binary_strict", False, False, [ONE, THREE], 0.0),
        ("binary_strict", False, False, [ONE], 0.0),
        ("binary_strict", False, False, [ONE, TWO, THREE], 0.0),
        ("binary_strict", True, False, [ONE], 1.0),
        ("binary_strict", False, True, [ONE, TWO, THREE], 1.0),
        ("fractional", False, False, [ONE, THREE], 0.5),
        ("fractional", True, False, [TWO], 1.0),
        ("fractional", True, False, [THREE], 0.0),
        ("fractional", False, True, [ONE, THREE, THREE], 0.5),
        ("f1", False, False, [ONE, THREE], 0.5),
        ("f1", True, False, [ONE], 2 / 3),
        ("f1", False, True, [ONE, TWO, THREE], 0.8),
        ("f1", True, True, [THREE, THREE, THREE], 0.0),
    ],
)
async def test_parallel_calls_can_earn_a_partial_reward(
    mode: str, subset: bool, superset: bool, calls: list[dict[str, Any]], reward: float
) -> None:
    settings: dict[str, Any] = {"allow_subset": subset, "allow_superset": superset}
    settings["parallel_tool_call_reward_mode"] = mode
    verdict = await graded(row(ONE, TWO), answer(*calls), parallel_tool_call_rewarding=True, **settings)
    assert verdict.reward == reward


async def test_the_thresholds_can_be_set() -> None:
    assert (await graded(row(call(x=2.0)), answer(call(x=2.4)), floating_point_comparison_threshold=0.5)).reward == 1.0
    texts = row(call(text="a song about the sea")), answer(call(text="songs of the open sea"))
    assert (await graded(*texts)).reward == 1.0
    assert (await graded(*texts, word_count_similarity_threshold=0.4)).reward == 0.0


async def test_a_blank_message_is_not_a_message_except_in_compat() -> None:
    for text in ("", " \n"):
        assert (await graded(row(), answer(text))).values["reason"] == "nothing"
        assert (await graded(row(), answer(text), compat=True)).reward == 1.0


async def test_one_replaced_word_in_a_short_phrase_is_a_mismatch_except_in_compat() -> None:
    pair = row(call(what="lock the front door")), answer(call(what="lock the back door"))
    assert (await graded(*pair)).reward == 0.0
    assert (await graded(*pair, compat=True)).reward == 1.0


async def test_sql_statements_with_different_verbs_do_not_match_except_in_compat() -> None:
    pair = row(call(q="SELECT key FROM doors")), answer(call(q="DELETE FROM doors WHERE key IS NULL"))
    assert (await graded(*pair)).reward == 0.0
    assert (await graded(*pair, compat=True)).reward == 1.0


async def test_true_is_not_1_except_in_compat() -> None:
    pair = row(call(n=1)), answer(call(n=True))
    assert (await graded(*pair)).reward == 0.0
    assert (await graded(*pair, compat=True)).reward == 1.0


@pytest.mark.parametrize("compat", [False, True])
async def test_integers_floats_and_booleans_are_different_types(compat: bool) -> None:
    for expected, actual in [(2.0, 2), (2, 2.0), (True, 1)]:
        assert (await graded(row(call(n=expected)), answer(call(n=actual)), compat=compat)).reward == 0.0


async def test_the_same_words_match_at_any_threshold_except_in_compat() -> None:
    pair = row(call(text="open the gate")), answer(call(text="open the gate"))
    assert (await graded(*pair, word_count_similarity_threshold=0.6)).reward == 1.0
    assert (await graded(*pair, word_count_similarity_threshold=0.6, compat=True)).reward == 0.0


async def test_guessing_with_many_calls_earns_nothing_except_in_compat() -> None:
    guesses = answer(*(call(n=number) for number in range(FREE_CALLS + 2)))
    assert (await graded(row(ONE), guesses)).values["reason"] == "count"
    assert (await graded(row(ONE), guesses, compat=True)).reward == 1.0


async def test_an_empty_batch_is_refused_except_in_compat() -> None:
    task = {**row(), "expected_action": {"type": "function_call_batch", "calls": []}}
    refused = await judge(NAME, task, answer(ONE))
    assert isinstance(refused, Failure)
    assert refused.kind == "bad_row"
    assert (await graded(task, answer(ONE), compat=True)).reward == 1.0
    for mode in ("fractional", "f1"):
        settings: dict[str, Any] = {"parallel_tool_call_rewarding": True, "parallel_tool_call_reward_mode": mode}
        assert (await graded(task, answer(ONE), compat=True, allow_superset=True, **settings)).reward == 0.0


async def test_a_row_whose_arguments_are_not_json_is_masked_except_in_compat() -> None:
    task = row({"type": "function_call", "name": "open_door", "arguments": "{"})
    verdict = await graded(task, answer(ONE))
    assert (verdict.reward, verdict.mask) == (0.0, "the expected arguments are not JSON")
    assert (await graded(task, answer(ONE), compat=True)).mask is None


@pytest.mark.parametrize(
    "action",
    [None, {}, {"type": "tool"}, {"type": "message"}, {"type": "function_call", "name": "f", "arguments": {"n": 1}}],
)
async def test_a_bad_row_is_refused(action: Any) -> None:
    verdict = await judge(NAME, {**row(), "expected_action": action}, answer("Hm?"))
    assert isinstance(verdict, Failure)
    assert verdict.kind == "bad_row"


@pytest.mark.parametrize("arguments", ["[" * 100_000, '{"n": ' + "1" * 5_000 + "}", "", "null", "\ud800"])
async def test_hostile_arguments_earn_nothing(arguments: str) -> None:
    step = answer({"name": "open_door", "arguments": arguments})
    for compat in (False, True):
        assert (await graded(row(ONE), step, compat=compat)).reward == 0.0


def test_public_rows_load() -> None:
    assert [SingleStepToolUse.Task.model_validate(task) for task in shared_rows(NAME)]


async def test_verdicts_agree_with_the_reference() -> None:
    assert await disagreements(NAME) == []


async def test_compat_agrees_with_the_reference_where_it_is_wrong() -> None:
    assert await disagreements(NAME, compat=True) == []
