"""Instruction following: rows, rewards and masks. The tests of each instruction are in test_instructions.py."""

from __future__ import annotations

import json
from typing import Any

import pytest

import ludus
from ludus import Failure, Outcome, Request, Response, ScriptedModel, Verdict
from ludus.environments.instruction_following.resources import InstructionFollowing
from ludus.response import function_call, message, reasoning, texts_of
from ludus.runtime.processes import ProcessPool
from ludus.testing import disagreements, judge, shared_rows

NAME = "instruction_following"
NO_COMMA: dict[str, Any] = {"punctuation:no_comma": {}}
OWL: dict[str, Any] = {"keywords:existence": {"keywords": ["owl"]}}
SHORT: dict[str, Any] = {"length_constraints:number_words": {"num_words": 4, "relation": "less than"}}

#: An answer to each of the shipped rows, by the row's id.
ANSWERS = {
    1: "The first boats leave while the gulls still sleep and the water lies flat.",
    2: "Dear [name],\nyour cat sits in our shed.\nYours, [neighbour]\n\nP.S. She likes tuna.",
    3: "* a boat\n* water\n* a hat\nHave fun.",
    4: "Bienen merken sich den Stand der Sonne und den Geruch ihres eigenen Stocks.",
    5: "My answer is yes.",
    6: '```json\n{"name": "Anne", "age": 31}\n```',
    7: "Smoke\n******\nPebble",
    8: "moonlight is sunlight that comes back to us. moonlight has no warmth. moonlight helps the owls to see.",
}


def row(instructions: dict[str, Any], **changes: Any) -> dict[str, Any]:
    metadata = {"instruction_id_list": list(instructions), "prompt": "", "kwargs": list(instructions.values())}
    return {"id": 1, "responses_create_params": {"input": "?"}, "verifier_metadata": metadata | changes}


async def graded(text: str | Response, task: dict[str, Any], **settings: Any) -> Verdict:
    verdict = await judge(NAME, task, text, **settings)
    assert isinstance(verdict, Verdict), verdict
    return verdict


def test_only_following_every_instruction_earns_the_reward() -> None:
    task = row(NO_COMMA | OWL)
    for text, reward, followed in [("an owl", 1.0, [True, True]), ("an owl, too", 0.0, [False, True])]:
        rollout = ludus.collect(NAME, model=ScriptedModel([text]), input=[task]).rollouts[0]
        assert (rollout.outcome, rollout.reward) == (Outcome.COMPLETED, reward)
        assert rollout.to_row()["follow_instruction_list"] == followed
        assert rollout.to_row()["follow_all_instructions"] == all(followed)


def test_the_shipped_rows_can_be_solved() -> None:
    lines = ludus.Environment.load(NAME).dataset().read_text(encoding="utf-8").splitlines()
    answers = {
        texts_of(row["responses_create_params"]["input"][0]): ANSWERS[row["id"]] for row in map(json.loads, lines)
    }

    def oracle(request: Request) -> str:
        return answers[texts_of(request.input[0])]

    result = ludus.collect(NAME, model=ScriptedModel(oracle))
    assert len(result.rollouts) >= 6
    assert [(it.outcome, it.reward) for it in result.rollouts] == [(Outcome.COMPLETED, 1.0)] * len(result.rollouts)


async def test_grading_mode_fraction_rewards_the_share_of_followed_instructions() -> None:
    task = row(NO_COMMA | OWL | SHORT, grading_mode="fraction")
    for text, share in [("an owl", 1.0), ("an owl, too", 2 / 3), ("a wren, and one more", 0.0)]:
        assert (await graded(text, task)).reward == share


async def test_metadata_may_stand_at_the_top_level_and_nested_values_win() -> None:
    flat = {"instruction_id_list": ["keywords:existence"], "prompt": "", "kwargs": [{"keywords": ["owl"]}]}
    base = {"id": 1, "responses_create_params": {"input": "?"}, **flat}
    assert (await graded("an owl", base)).reward == 1.0
    mixed = {**base, "verifier_metadata": {"kwargs": [{"keywords": ["wren"]}]}}
    assert (await graded("an owl", mixed)).reward == 0.0
    assert (await graded("an owl, too", {**base, "grading_mode": "fraction"})).reward == 1.0


@pytest.mark.parametrize(
    "change",
    [
        {"grading_mode": "mean"},
        {"instruction_id_list": None},
        {"kwargs": {}},
        {"kwargs": ["owl"]},
        {"prompt": 5},
    ],
)
async def test_a_bad_row_is_refused(change: dict[str, Any]) -> None:
    verdict = await judge(NAME, row(OWL, **change), "an owl")
    assert isinstance(verdict, Failure)
    assert verdict.kind == "bad_row"


async def test_a_row_without_an_id_or_without_metadata_is_refused() -> None:
    for missing in ("id", "verifier_metadata"):
        task = {key: value for key, value in row(OWL).items() if key != missing}
        verdict = await judge(NAME, task, "an owl")
        assert isinstance(verdict, Failure)
        assert verdict.kind == "bad_row"
    verdict = await judge(NAME, {**row(OWL), "verifier_metadata": "owl"}, "an owl")
    assert isinstance(verdict, Failure)


@pytest.mark.parametrize(
    ("name", "arguments", "reason"),
    [
        ("keywords:exist", {}, "instruction 1, keywords:exist: unknown instruction"),
        ("punctuation:no_comma", {"bogus": 1}, "instruction 1, punctuation:no_comma: bogus: Extra inputs"),
        ("length_constraints:number_words", {"num_words": 1, "relation": "about"}, "relation: Input should be"),
    ],
)
async def test_an_instruction_that_cannot_be_checked_is_not_followed_and_masks_the_rollout(
    name: str, arguments: dict[str, Any], reason: str
) -> None:
    verdict = await graded("fine", row({name: arguments}))
    assert (verdict.reward, verdict.values["follow_instruction_list"]) == (0.0, [False])
    assert reason in (verdict.mask or "")
    assert (await graded("fine", row({name: arguments}), compat=True)).mask is None


async def test_a_missing_argument_is_not_drawn_at_random() -> None:
    for name in ("keywords:existence", "keywords:forbidden_words", "length_constraints:number_words"):
        for compat in (False, True):
            verdict = await graded("fine", row({name: {}}), compat=compat)
            assert (verdict.reward, verdict.mask is None) == (0.0, compat)


async def test_an_empty_response_does_not_earn_the_reward_except_in_compat() -> None:
    for text in ("", " \n"):
        for mode in ("binary", "fraction"):
            task = row(NO_COMMA | SHORT, grading_mode=mode)
            verdict = await graded(text, task)
            assert (verdict.reward, verdict.values["follow_all_instructions"]) == (0.0, False)
            assert (await graded(text, task, compat=True)).reward == 1.0
    assert (await graded(Response({}), row(NO_COMMA))).reward == 0.0


async def test_a_row_without_instructions_is_masked_and_earns_nothing_except_in_compat() -> None:
    verdict = await graded("anything", row({}))
    assert (verdict.reward, verdict.mask) == (0.0, "the row has 0 instructions and 0 sets of arguments")
    assert (await graded("anything", row({}), compat=True)).reward == 1.0
    for compat in (False, True):
        assert (await graded("anything", row({}, grading_mode="fraction"), compat=compat)).reward == 0.0


async def test_instructions_without_arguments_mask_the_rollout() -> None:
    task = row(NO_COMMA | OWL, kwargs=[{}])
    verdict = await graded("fine", task)
    assert verdict.values["follow_instruction_list"] == [True]
    assert verdict.mask == "the row has 2 instructions and 1 sets of arguments"
    assert (await graded("fine", task, compat=True)).mask is None


async def test_only_the_last_message_counts() -> None:
    assert (await graded(Response.of(message("an owl"), message("a wren")), row(OWL))).reward == 0.0
    assert (await graded(Response.of(message("a wren"), message("an owl")), row(OWL))).reward == 1.0


async def test_reasoning_or_a_call_after_the_last_message_does_not_hide_it_except_in_compat() -> None:
    for item in (reasoning("hm"), function_call("look", {}, call_id="call_1")):
        response = Response.of(message("an owl"), item)
        assert (await graded(response, row(OWL))).reward == 1.0
        assert (await graded(response, row(OWL), compat=True)).reward == 0.0


async def test_reasoning_is_not_an_answer() -> None:
    assert (await graded(Response.of(reasoning("an owl")), row(OWL))).reward == 0.0


async def test_a_message_without_text_is_an_empty_answer() -> None:
    refusal = {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}
    for item in (refusal, {**refusal, "content": None}, {**refusal, "content": [None]}, {**refusal, "content": []}):
        assert (await graded(Response.of(item), row(NO_COMMA))).reward == 0.0
    assert (await graded(Response.of({**refusal, "content": "an owl"}), row(OWL))).reward == 1.0


async def test_a_pattern_that_runs_too_long_is_a_timeout() -> None:
    task = row({"keywords:existence": {"keywords": ["(a|aa)+$"]}})
    text = "a" * 60 + "!"
    assert (await graded(text, task)).reward == 0.0
    verdict = await judge(NAME, task, text, compat=True)
    assert isinstance(verdict, Failure)
    assert (verdict.kind, verdict.stage) == ("timeout", "verify")


async def test_without_compat_no_other_process_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProcessPool, "run", None)
    everything: dict[str, Any] = NO_COMMA | OWL | SHORT
    everything |= {
        "length_constraints:number_sentences": {"num_sentences": 3, "relation": "at least"},
        "detectable_format:number_bullet_lists": {"num_bullets": 3},
    }
    verdict = await graded(
        "The owl sleeps all day. At night it hunts for mice! Do you hear it?\n" * 15, row(everything)
    )
    assert verdict.values["follow_instruction_list"] == [True, True, False, True, False]


def test_public_rows_load() -> None:
    assert [InstructionFollowing.Task.model_validate(row) for row in shared_rows(NAME)]


async def test_verdicts_agree_with_the_reference() -> None:
    assert await disagreements(NAME) == []


async def test_compat_agrees_with_the_reference_where_it_is_wrong() -> None:
    assert await disagreements(NAME, compat=True) == []
