"""Follow-up questions come in order whatever the answers are, and only the last answer counts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ludus
from ludus import Environment, Failure, Response, Rollout, ScriptedModel, Verdict
from ludus.environments.example_multi_turn_gymnasium.matching import says
from ludus.environments.example_multi_turn_gymnasium.resources import FollowUps
from ludus.response import message, texts_of
from ludus.testing import disagreements, judge, shared_rows

NAME = "example_multi_turn_gymnasium"
ROW: dict[str, Any] = {
    "responses_create_params": {"input": "What is 4 times 5?"},
    "follow_ups": ["Take away 3."],
    "expected_answer": "17",
}
ONE: dict[str, Any] = {**ROW, "follow_ups": [], "expected_answer": "20"}


def play(*turns: Any, row: dict[str, Any] = ROW, **options: Any) -> Rollout:
    return ludus.collect(NAME, model=ScriptedModel(list(turns)), input=[row], **options).rollouts[0]


async def reward_for(text: str, row: dict[str, Any] = ONE, **settings: Any) -> float:
    verdict = await judge(NAME, row, text, **settings)
    assert isinstance(verdict, Verdict), verdict
    return verdict.reward


def test_the_questions_come_in_order_and_the_last_answer_counts() -> None:
    row = {**ROW, "follow_ups": ["First?", "Second?"]}
    rollout = play("a", "b", "It is 17.", row=row)
    assert rollout.response is not None
    assert [texts_of(item) for item in rollout.response.output] == ["a", "First?", "b", "Second?", "It is 17."]
    assert (rollout.reward, rollout.stop_reason) == (1.0, "terminated")
    assert rollout.verdict is not None
    assert rollout.verdict.turn_rewards == [0.0, 0.0, 1.0]


def test_the_right_answer_too_early_earns_nothing() -> None:
    assert play("17", "18").reward == 0.0
    assert play("17", "As I said.").reward == 0.0
    assert play("17", {"items": []}).reward == 0.0


def test_a_conversation_stopped_early_is_truncated_with_reward_0() -> None:
    rollout = play("17", settings={"agent.max_steps": 1})
    assert (rollout.reward, rollout.stop_reason) == (0.0, "max_steps")
    assert rollout.verdict is not None
    assert rollout.verdict.values["truncated"] is True


def test_many_follow_ups_are_asked() -> None:
    row = {**ROW, "follow_ups": ["Go on."] * 20}
    rollout = play(*["hm"] * 20, "17", row=row)
    assert (rollout.reward, len(rollout.calls)) == (1.0, 21)


RIGHT = [
    "20",
    "It is 20.",
    "**20**",
    "4 * 5 = 20",
    "20, which is 4 times 5",
    "It is 20, not 21.",
    "Not 19; it is 20!",
    "20km",
    "$20$",
    "\\boxed{20}",
    "The answer: 20\n\n1. Multiply.\n2. Done.",
]


@pytest.mark.parametrize("text", RIGHT)
async def test_the_answer_may_be_anywhere_in_the_text(text: str) -> None:
    assert await reward_for(text) == 1.0
    assert await reward_for(text, compat=True) == 1.0


@pytest.mark.parametrize("text", ["", " ", "21", "twenty", "2 0", "Let me see."])
async def test_another_answer_earns_nothing(text: str) -> None:
    assert await reward_for(text) == 0.0
    assert await reward_for(text, compat=True) == 0.0


@pytest.mark.parametrize("text", ["2020", "120", "20.5", "1,020", "20,000", "-20", "3/20", "\u221220"])
async def test_part_of_a_longer_word_or_number_does_not_count_except_in_compat(text: str) -> None:
    assert await reward_for(text) == 0.0
    assert await reward_for(text, compat=True) == 1.0
    iron = {**ONE, "expected_answer": "iron"}
    assert await reward_for("the environment", iron) == 0.0
    assert await reward_for("the environment", iron, compat=True) == 1.0
    assert await reward_for("Irons are made of IRON", iron) == 1.0


@pytest.mark.parametrize("text", ["not 20", "It isn't 20.", "Anything but 20", "It is not equal to **20**", "never 20"])
async def test_a_denied_answer_does_not_count_except_in_compat(text: str) -> None:
    assert await reward_for(text) == 0.0
    assert await reward_for(text, compat=True) == 1.0


LISTS = ["20 or 21", "19, 20, 21", "1 2 3 ... 20 21 22", "20/21", "18 and 20", " ".join(f"({n})" for n in range(30))]


@pytest.mark.parametrize("text", LISTS)
async def test_a_number_in_a_list_does_not_count_except_in_compat(text: str) -> None:
    assert await reward_for(text) == 0.0
    assert await reward_for(text, compat=True) == 1.0


async def test_spaces_must_match_exactly() -> None:
    assert await reward_for("A  B", {**ONE, "expected_answer": "a b"}) == 0.0
    assert await reward_for("A B", {**ONE, "expected_answer": "a b"}) == 1.0


async def test_the_expected_answer_may_be_a_number_except_in_compat() -> None:
    row = {**ONE, "expected_answer": 20}
    assert await reward_for("20", row) == 1.0
    failure = await judge(NAME, row, "20", compat=True)
    assert isinstance(failure, Failure)
    assert failure.kind == "bad_row"
    assert isinstance(await judge(NAME, {**ONE, "expected_answer": True}, "True"), Failure)


async def test_fields_in_verifier_metadata_are_read_except_in_compat() -> None:
    row = {**ROW, "verifier_metadata": {"follow_ups": [], "expected_answer": "20"}}
    del row["follow_ups"], row["expected_answer"]
    assert await reward_for("20", row) == 1.0
    assert await reward_for("20", row, compat=True) == 0.0
    assert await reward_for("7", {**row, "expected_answer": "7"}) == 1.0


async def test_a_row_without_an_expected_answer_is_masked_except_in_compat() -> None:
    row = {**ONE, "expected_answer": ""}
    for compat, mask in ((False, "the row has no expected answer"), (True, None)):
        verdict = await judge(NAME, row, "anything", compat=compat)
        assert isinstance(verdict, Verdict)
        assert (verdict.reward, verdict.mask) == (0.0, mask)


@pytest.mark.parametrize("change", [{"follow_ups": "x"}, {"follow_ups": [1]}, {"expected_answer": None}])
async def test_a_bad_row_is_refused(change: dict[str, Any]) -> None:
    failure = await judge(NAME, {**ROW, **change}, "17")
    assert isinstance(failure, Failure)
    assert failure.kind == "bad_row"


async def test_parts_of_an_answer_are_read_as_one_text() -> None:
    part = {"type": "output_text", "annotations": []}
    item = {**message(""), "content": [{**part, "text": "2"}, {**part, "text": "0"}]}
    verdict = await judge(NAME, ONE, Response.of(item))
    assert isinstance(verdict, Verdict)
    assert verdict.reward == 1.0


@given(st.text(), st.text(min_size=1), st.text())
def test_any_text_can_be_judged_and_must_contain_the_expected_text(text: str, expected: str, asked: str) -> None:
    if says(text, expected, asked):
        assert expected.lower() in text.lower()


@given(st.integers(0, 10**6), st.sampled_from(["It is {}.", "{}", "I think that {} is right", "= {}"]))
def test_a_number_in_a_sentence_counts(number: int, sentence: str) -> None:
    assert says(sentence.format(number), str(number), "How many?")
    assert not says(sentence.format(f"1{number}"), str(number), "How many?") or str(number) == f"1{number}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("not 20 " * 30_000, False),
        ("20" + " " * 79 + "1 " * 50_000, False),
        ("1." * 50_000, False),
        ("20 or " * 30_000, True),
    ],
)
def test_hostile_texts_are_judged_in_linear_time(text: str, said: bool) -> None:
    assert says(text, "20", "") is said


def test_the_example_rows_can_be_solved() -> None:
    lines = Environment.load(NAME).dataset().read_text(encoding="utf-8").splitlines()
    tasks = {json.loads(line)["responses_create_params"]["input"][0]["content"]: json.loads(line) for line in lines}

    def oracle(request: Any) -> str:
        task = tasks[texts_of(request.input[0])]
        return f"It is {task['expected_answer']}." if request.turn == len(task["follow_ups"]) else "One moment."

    rollouts = ludus.collect(NAME, model=ScriptedModel(oracle)).rollouts
    assert len(rollouts) >= 5
    assert all(rollout.reward == 1.0 for rollout in rollouts)


def test_public_rows_load() -> None:
    assert [FollowUps.Task.model_validate(row) for row in shared_rows(NAME)]


async def test_verdicts_agree_with_the_reference() -> None:
    assert await disagreements(NAME) == []


async def test_compat_agrees_with_the_reference_also_in_its_mistakes() -> None:
    assert await disagreements(NAME, compat=True) == []
