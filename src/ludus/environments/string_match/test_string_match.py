"""Short answers: how they are extracted, and what they earn."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import ludus
from ludus import Failure, Outcome, Request, Response, ScriptedModel, Verdict
from ludus.environments.string_match.comparing import reward_of
from ludus.environments.string_match.extraction import MODES
from ludus.environments.string_match.resources import StringMatch
from ludus.response import message, reasoning, texts_of
from ludus.testing import disagreements, judge, shared_rows

NAME = "string_match"
ROW: dict[str, Any] = {"responses_create_params": {"input": "Which planet is red?"}, "expected_answer": "Mars"}

#: Marks that the functions look for, so that random texts contain them.
marks = [
    "\\boxed{",
    "\\text{",
    "{",
    "}",
    "\\",
    "answer:",
    "**",
    "_",
    "$",
    ",",
    "1",
    "m",
    "kg",
    " and ",
    "texas",
    '"',
    ".",
    "\n",
]
hostile = st.one_of(st.text(), st.lists(st.sampled_from(marks)).map("".join))


async def graded(text: str | Response, task: dict[str, Any] = ROW, **settings: Any) -> Verdict:
    verdict = await judge(NAME, task, text, **settings)
    assert isinstance(verdict, Verdict), verdict
    return verdict


def test_only_the_right_answer_earns_the_reward() -> None:
    for text, reward in [("Final answer: mars", 1.0), ("Final answer: Venus", 0.0), ("I do not know.", 0.0)]:
        rollout = ludus.collect(NAME, model=ScriptedModel([text]), input=[ROW]).rollouts[0]
        assert (rollout.outcome, rollout.reward) == (Outcome.COMPLETED, reward)
        assert rollout.to_row()["expected_answer"] == "Mars"


def test_the_shipped_rows_can_be_solved() -> None:
    environment = ludus.Environment.load(NAME)
    tasks = [StringMatch.Task.model_validate_json(line) for line in environment.dataset().read_bytes().splitlines()]
    answers = {texts_of(task.input[0]): task for task in tasks}
    forms = {"boxed": r"So it is \boxed{{{}}}.", "final_answer": "So:\nFinal answer: {}", "last_line": "So:\n{}"}

    def oracle(request: Request) -> str:
        task = answers[texts_of(request.input[0])]
        return forms.get(task.extraction_mode, "{}").format(task.expected_answer)

    result = ludus.collect(NAME, model=ScriptedModel(oracle))
    assert len(result.rollouts) >= 5
    assert all(rollout.reward == 1.0 for rollout in result.rollouts)


@pytest.mark.parametrize(
    ("mode", "text", "answer"),
    [
        ("boxed", r"\boxed{Venus} or \boxed{Mars}", "Mars"),
        ("boxed", r"\boxed{\text{Mars}}", "Mars"),
        ("boxed", r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        ("boxed", r"\boxed{Mars} or \boxed{Venus", "Mars"),
        ("boxed", r"\boxed{a \boxed{b}}", "b"),
        ("boxed", r"\boxed{ }", ""),
        ("boxed", "Answer: Mars", None),
        ("final_answer", "Answer: Venus\nno, FINAL ANSWER : Mars. \nBye", "Mars"),
        ("final_answer", "Answer\uff1aMars", "Mars"),
        ("final_answer", "Final answer:\n\nMars\nBye", "Mars"),
        ("final_answer", r"Answer: \boxed{Mars}", r"\boxed{Mars}"),
        ("final_answer", r"It is \boxed{Mars}", "Mars"),
        ("final_answer", "The answer is Mars", None),
        ("last_line", "Venus\nMars \n\n", "Mars"),
        ("last_line", " \n", None),
        ("full_response", " Mars\nof course ", "Mars\nof course"),
        ("full_response", "", None),
    ],
)
def test_each_mode_finds_the_answer(mode: str, text: str, answer: str | None) -> None:
    assert MODES[mode](text, False) == MODES[mode](text, True) == answer


@pytest.mark.parametrize(
    ("answer", "expected", "reward"),
    [
        ("mars", "Mars", 1.0),
        ("Mars!", "Mars", 1.0),
        ("'Mars'", '"mars"', 1.0),
        ("\uff2d\uff41\uff52\uff53", "Mars", 1.0),
        ("?", "?", 1.0),
        ("?", "!", 0.0),
        ("Venus", "Mars", 0.0),
        ("2.50", "2.5", 1.0),
        ("1e3", "1000", 1.0),
        ("$5", "5", 1.0),
        (r"5\%", "5", 1.0),
        ("1,234", "1234", 1.0),
        (r"\boxed{\text{Mars}}", "mars", 1.0),
        (r"$x = 2$", "x = 2", 1.0),
        (r"\( a  b \)", "a b", 1.0),
        ("east; west", "east, west", 1.0),
        ("west, east", "east, west", 0.0),
        ("Ohio", "OH", 1.0),
        ("Salem, Oregon", "Salem, OR", 1.0),
        ("West Virginia", "wv", 1.0),
        ("100.9", "100", 0.98),
        ("102", "100", 0.0),
        ("-100", "100", 0.0),
        ("0.001", "0", 0.0),
        ("50%", "50", 0.98),
        ("\u20ac1,200", "1200", 0.98),
        ("30 kg", "30", 0.98),
        (r"30^\circ", "30\u00b0", 0.98),
        ("", "Mars", 0.0),
        ("Mars", "", 0.0),
        (" ", " ", 0.0),
    ],
)
def test_other_spellings_of_an_answer_earn_the_reward(answer: str, expected: str, reward: float) -> None:
    assert reward_of(answer, expected) == reward
    assert reward_of(answer, expected, compat=True) == reward


def test_case_sensitive_answers_must_be_identical() -> None:
    assert reward_of(" Co ", "Co", case_sensitive=True) == 1.0
    assert reward_of("CO", "Co", case_sensitive=True) == 0.0
    assert reward_of("Co.", "Co", case_sensitive=True) == 0.0


@pytest.mark.parametrize(
    "text", ["**Final Answer:** Mars", "**Answer**: Mars", "**Answer: Mars**", "**Answer:**\nMars"]
)
async def test_emphasis_around_the_keyword_is_not_part_of_the_answer_except_in_compat(text: str) -> None:
    verdict = await graded(text)
    assert (verdict.reward, verdict.values["extracted_answer"]) == (1.0, "Mars")
    assert (await graded(text, compat=True)).reward == 0.0


@pytest.mark.parametrize("answer", ["**Mars**", "_Mars_", "`Mars`", "\u201cMars\u201d", '"Mars".', "**Mars.**"])
def test_quotes_and_emphasis_are_removed_in_any_order_except_in_compat(answer: str) -> None:
    assert reward_of(answer, "Mars") == 1.0
    assert reward_of(answer, "Mars", compat=True) == 0.0


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("ars", "mars"),  # a unit deleted inside a word
        ("o", "kmo"),
        ("the st is full of yellow flowers here", "the stand is full of yellow flowers here"),  # "and" deleted too
        ("12", "1,2"),  # a pair read as a number
        ("VA Woolf", "Virginia Woolf"),  # a state in a name
        ("5 km", "5 kg"),  # other units
        ("$5 ", "\u20ac5"),
    ],
)
def test_answers_that_only_look_alike_earn_nothing_except_in_compat(answer: str, expected: str) -> None:
    assert reward_of(answer, expected) == 0.0
    assert reward_of(answer, expected, compat=True) > 0.0


def test_only_equal_numbers_earn_1_except_in_compat() -> None:
    assert reward_of("0", "-0") == 1.0
    assert reward_of("0", "-0", compat=True) == 0.98
    more_digits_than_a_float_holds = "100000000000000001", "100000000000000002"
    assert reward_of(*more_digits_than_a_float_holds) == 0.98
    assert reward_of(*more_digits_than_a_float_holds, compat=True) == 1.0


def test_a_range_may_lack_its_unit_but_not_have_another() -> None:
    assert reward_of("10-20 kg", "10-20") == 1.0
    assert reward_of("10-20 kg", "10-20 km") == 0.0


@given(hostile, hostile)
def test_no_text_raises_an_error(text: str, expected: str) -> None:
    for compat in (False, True):
        for mode in MODES.values():
            assert reward_of(mode(text, compat) or "", expected, compat=compat) in (0.0, 1.0)


@given(st.text(min_size=1).filter(str.strip))
def test_every_answer_equals_itself(text: str) -> None:
    assert reward_of(text, text) == reward_of(text, text, compat=True) == 1.0


@pytest.mark.usefixtures("processor_limit")
def test_grading_hostile_text_takes_linear_time() -> None:
    units = [
        "\\boxed{",
        "answer: ",
        "answer",
        "answer*",
        "\n",
        '"',
        "**",
        "\\text{",
        "\\text{a",
        "1,",
        "1 m",
        "and ",
        "new ",
        "$",
    ]
    for unit in units:
        text = unit * (60_000 // len(unit))
        for mode in MODES.values():
            reward_of(mode(text, False) or text, "10 kg")
            reward_of(mode(text, True) or text, "10 kg", compat=True)


async def test_only_the_text_of_messages_counts_and_each_part_is_a_line() -> None:
    assert (await graded(Response.of(reasoning("Answer: Mars")))).values["extracted_answer"] is None
    assert (await graded(Response.of(message("Answer: Venus"), message("Answer: Mars")))).reward == 1.0
    assert (
        await graded(Response.of({"type": "message", "role": "assistant", "content": "Answer: Mars"}))
    ).reward == 1.0
    assert (await graded(Response({}))).reward == 0.0


async def test_a_row_without_an_answer_is_masked_except_in_compat() -> None:
    task = {**ROW, "expected_answer": " "}
    assert (await graded("Answer: Mars", task)).mask == "there is no expected answer"
    assert (await graded("Answer: Mars", task, compat=True)).mask is None


@pytest.mark.parametrize(
    "fields", [{"expected_answer": 4}, {"extraction_mode": "first_line"}, {"case_sensitive": "maybe"}]
)
async def test_a_bad_row_is_refused(fields: dict[str, Any]) -> None:
    verdict = await judge(NAME, {**ROW, **fields}, "Answer: 4")
    assert isinstance(verdict, Failure)
    assert verdict.kind == "bad_row"


def test_public_rows_load() -> None:
    assert [StringMatch.Task.model_validate(task) for task in shared_rows(NAME)]


async def test_verdicts_agree_with_the_reference() -> None:
    assert await disagreements(NAME) == []


async def test_compat_agrees_with_the_reference_where_it_is_wrong() -> None:
    assert await disagreements(NAME, compat=True) == []
