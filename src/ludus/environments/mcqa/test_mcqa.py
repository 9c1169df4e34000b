"""Multiple choice: rows, patterns and verdicts. The tests of the grading modes are in test_grading.py."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ludus
from ludus import Failure, Outcome, Request, Response, ScriptedModel, Verdict
from ludus.environments.mcqa.resources import MultipleChoice
from ludus.response import message, reasoning, texts_of
from ludus.runtime.processes import ProcessPool
from ludus.testing import disagreements, judge, shared_rows

NAME = "mcqa"
ROW: dict[str, Any] = {
    "responses_create_params": {"input": "Which metal is red?"},
    "options": [{"A": "iron"}, {"B": "copper"}, {"C": "a tin can"}, {"D": None}],
    "expected_answer": "B",
}
TEN = [{letter: f"{number} m"} for number, letter in enumerate("ABCDEFGHIJ", start=1)]


async def graded(text: str | Response, row: dict[str, Any] = ROW, **settings: Any) -> Verdict:
    verdict = await judge(NAME, row, text, **settings)
    assert isinstance(verdict, Verdict), verdict
    return verdict


async def templated(text: str, pattern: Any, **settings: Any) -> Any:
    verdict = await graded(text, {**ROW, "template_metadata": {"output_regex": pattern}}, **settings)
    return verdict.values["extracted_answer"]


def test_only_the_right_letter_earns_the_reward() -> None:
    for text, reward in [(r"\boxed{B}", 1.0), (r"\boxed{A}", 0.0), ("I do not know.", 0.0)]:
        rollout = ludus.collect(NAME, model=ScriptedModel([text]), input=[ROW]).rollouts[0]
        assert (rollout.outcome, rollout.reward) == (Outcome.COMPLETED, reward)
        assert rollout.to_row()["expected_answer"] == "B"


def test_the_shipped_rows_can_be_solved() -> None:
    environment = ludus.Environment.load(NAME)
    rows = [MultipleChoice.Task.model_validate_json(line) for line in environment.dataset().read_bytes().splitlines()]
    answers = {texts_of(task.input[-1]): task for task in rows}

    def oracle(request: Request) -> str:
        task = answers[texts_of(request.input[-1])]
        how = {"lenient_answer_colon": "Answer: {}", "lenient_boxed": r"\boxed{{{}}}"}
        form = "My choice is {}" if task.template_metadata else how.get(task.grading_mode, r"\boxed{{{}}}")
        return form.format(task.expected_answer)

    result = ludus.collect(NAME, model=ScriptedModel(oracle))
    assert len(result.rollouts) >= 5
    assert all(rollout.reward == 1.0 for rollout in result.rollouts)


@pytest.mark.parametrize(
    ("text", "pattern", "letter"),
    [
        ("Pick: A. Pick: b", r"pick: ([A-D])", "B"),
        ("Pick: copper", r"Pick: (\w+)", "B"),
        ("Pick: ب", r"Pick: (\S)", "B"),
        ("B", r"[A-D]$", "B"),
        ("Pick: B", [r"Choose: (\w)", r"Pick: (\w)"], "B"),
        (r"\boxed{B}", r"Pick: (\w)", "B"),
        (r"\boxed{B}", "(", "B"),
        (r"\boxed{B}", "", "B"),
        (r"\boxed{B}", None, "B"),
        (r"\boxed{B}", 5, "B"),
        (r"\boxed{B}", [], "B"),
        ("Pick: gold", r"Pick: (\w+)", None),
        ("Pick: E", r"Pick: (\w)$", "E"),
    ],
)
async def test_the_pattern_of_a_row_is_tried_before_its_mode(text: str, pattern: Any, letter: str | None) -> None:
    assert await templated(text, pattern) == letter


async def test_a_letter_cut_from_a_word_is_not_an_answer_except_in_compat() -> None:
    assert await templated("ANSWER IS because of", r"answer is\s*([A-Z])") is None
    assert await templated("CAB", r"[A-D]$") is None
    assert await templated("ANSWER IS because of", r"answer is\s*([A-Z])", compat=True) == "B"
    assert await templated("答案是B因为", r"答案是([A-D])") == "B"
    assert await templated("ChoiceB", r"choice([A-D])") == "B"


async def test_a_pattern_with_two_groups_is_a_bad_row() -> None:
    for compat in (False, True):
        row = {**ROW, "template_metadata": {"output_regex": "(A)|(B)"}}
        verdict = await judge(NAME, row, "B", compat=compat)
        assert isinstance(verdict, Failure)
        assert verdict.kind == "bad_row"


async def test_a_pattern_that_runs_too_long_has_no_match() -> None:
    row = {**ROW, "template_metadata": {"output_regex": r"Answer\s*\s*\s*\s*:"}}
    verdict = await judge(NAME, row, "Answer" + " " * 100_000)
    assert isinstance(verdict, Verdict), verdict
    assert verdict.reward == 0.0


async def test_an_expected_answer_outside_the_options_is_masked_and_never_right_except_in_compat() -> None:
    row = {**ROW, "expected_answer": "E", "template_metadata": {"output_regex": "Pick ([A-Z])"}}
    verdict = await graded("Pick E", row)
    assert (verdict.reward, verdict.values["extracted_answer"]) == (0.0, "E")
    assert verdict.mask == "the expected answer is not one of the options"
    assert (await graded("Pick E", row, compat=True)).reward == 1.0
    assert (await graded(r"\boxed{B}", {**ROW, "options": []})).mask is not None
    assert (await graded("", {**ROW, "expected_answer": ""})).reward == 0.0


@pytest.mark.parametrize("compat", [False, True])
@pytest.mark.parametrize("options", [[], [{"A": None}], [{"1": "iron"}]])
async def test_without_options_the_letter_of_the_rows_pattern_counts(options: Any, compat: bool) -> None:
    row = {**ROW, "options": options, "template_metadata": {"output_regex": ["^No$", "Pick ([A-Z])"]}}
    cases = (("Pick B", "B", 1.0), ("Pick E", "E", 0.0), (r"\boxed{B}", None, 0.0), ("", None, 0.0))
    for text, letter, reward in cases:
        verdict = await graded(text, row, compat=compat)
        assert (verdict.reward, verdict.values["extracted_answer"], verdict.mask) == (reward, letter, None)


@pytest.mark.parametrize("template", [None, {}, *({"output_regex": pattern} for pattern in ("", [], [None, 3]))])
async def test_without_options_and_without_a_pattern_no_answer_is_right(template: Any) -> None:
    verdict = await graded("B", {**ROW, "options": [], "template_metadata": template})
    assert (verdict.reward, verdict.mask) == (0.0, "the expected answer is not one of the options")


LETTERS = st.sampled_from("ABCDE")


@given(st.lists(LETTERS, unique=True), LETTERS, LETTERS, st.booleans())
async def test_a_pattern_is_trusted_unless_the_options_exclude_the_expected_answer(
    options: list[str], expected: str, given_letter: str, has_pattern: bool
) -> None:
    template = {"output_regex": "Pick ([A-Z])"} if has_pattern else None
    row = {**ROW, "options": [{option: option * 3} for option in options], "expected_answer": expected}
    verdict = await graded(f"Pick {given_letter}", {**row, "template_metadata": template})
    can_be_solved = expected in options or (has_pattern and not options)
    assert (verdict.mask is None) == can_be_solved
    assert verdict.reward == float(can_be_solved and has_pattern and given_letter == expected)


async def test_the_setting_overrides_the_mode_of_the_row() -> None:
    row = {**ROW, "grading_mode": "lenient_answer_colon"}
    assert (await graded("Answer: B", row)).reward == 1.0
    assert (await graded("Answer: B", row, grading_mode="lenient_boxed")).reward == 0.0


@pytest.mark.parametrize(
    "change",
    [
        {"grading_mode": "lenient_answer_colon_md"},
        {"grading_mode": None},
        {"options": {"A": "x"}},
        {"expected_answer": 2},
    ],
)
async def test_a_bad_row_is_refused(change: dict[str, Any]) -> None:
    verdict = await judge(NAME, {**ROW, **change}, r"\boxed{B}")
    assert isinstance(verdict, Failure)
    assert verdict.kind == "bad_row"


async def test_only_the_text_of_messages_counts() -> None:
    assert (await graded(Response.of(reasoning(r"\boxed{B}")))).reward == 0.0
    assert (await graded(Response.of(message(r"\boxed{"), message("B}")))).reward == 1.0
    assert (await graded(Response({}))).reward == 0.0


async def test_without_a_pattern_of_the_row_no_other_process_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProcessPool, "run", None)
    for mode in ("strict_single_letter_boxed", "lenient_boxed", "lenient_answer_colon", "lenient_answer_colon_md"):
        text = r"It is \boxed{B}." if mode.endswith("boxed") else "It is copper.\nAnswer: B"
        assert (await graded(text, grading_mode=mode)).reward == 1.0, mode


def test_public_rows_load() -> None:
    assert [MultipleChoice.Task.model_validate(row) for row in shared_rows(NAME)]


async def test_verdicts_agree_with_the_reference() -> None:
    assert await disagreements(NAME) == []


async def test_compat_agrees_with_the_reference_where_it_is_wrong() -> None:
    assert await disagreements(NAME, compat=True) == []
