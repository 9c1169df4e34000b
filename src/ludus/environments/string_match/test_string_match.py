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
from ludus.environments.string_match.states import STATES
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


BOTH = pytest.mark.parametrize("compat", [False, True])
numbers = st.one_of(st.integers(-9999, 9999).map(str), st.decimals("-999", "999", places=2).map(str))
words = st.text("bcdefghijklnpqtuvwxyz", min_size=2, max_size=8)  # without the letters of "and", "or" and units
symbols = [
    (r"\pi", "\u03c0"),
    (r"\sqrt{2}", "\u221a2"),
    (r"\sqrt2", "\u221a2"),
    (r"\sqrt{x+1}", "\u221a(x+1)"),
    (r"\theta", "\u03b8"),
]
symbols += [(r"\times", "\u00d7"), (r"\infty", "\u221e"), (r"\leq", "\u2264"), (r"\sqrt{ 17 }", "\u221a17")]


@BOTH
@given(number=numbers, before=words)
def test_an_escaped_percent_sign_is_a_percent_sign(compat: bool, number: str, before: str) -> None:
    assert reward_of(rf"{number}\%", f"{number}%", compat=compat) == 1.0
    assert reward_of(rf"{before} {number}\%", f"{before} {number}%", compat=compat) == 1.0
    assert reward_of(rf"${number}\%$", rf"{number}\%", compat=compat) == 1.0
    assert reward_of(rf"{number}\%", number, compat=compat) == 1.0
    assert reward_of(f"{number}%", number, compat=compat) == 0.98


@BOTH
@given(symbol=st.sampled_from(symbols), number=st.integers(2, 99), after=st.sampled_from(["", "r", "/3", "+1"]))
def test_a_latex_command_is_its_symbol(compat: bool, symbol: tuple[str, str], number: int, after: str) -> None:
    command, sign = symbol
    separated = f" {after}" if after.isalpha() and command[-1].isalpha() else after
    for latex in (
        f"{number}{command}{separated}",
        f"${number} {command}{separated}$",
        rf"\boxed{{{number}{command}{separated}}}",
    ):
        assert reward_of(latex, f"{number}{sign}{after}", compat=compat) == 1.0
        assert reward_of(f"{number}{sign}{after}", latex, compat=compat) == 1.0
        assert reward_of(latex, f"{number + 50}{sign}{after}", compat=compat) == 0.0


def test_a_root_is_not_its_radicand() -> None:
    for answer in ("2", "x", "\u221a3", r"\sqrt{3}", r"\sqrt[3]{2}"):
        assert reward_of(answer, r"\sqrt{2}") == 0.0
    assert reward_of("sqrt(2)", r"\sqrt{2}") == 1.0
    assert reward_of(r"\pitch", "\u03c0tch") == 0.0


@BOTH
@given(
    items=st.lists(words, min_size=2, max_size=6),
    first=st.sampled_from(",;"),
    second=st.sampled_from(",;"),
    space=st.booleans(),
)
def test_commas_and_semicolons_separate_the_same_list(
    compat: bool, items: list[str], first: str, second: str, space: bool
) -> None:
    left, right = f"{first} ".join(items), f"{second}{' ' * space}".join(items)
    assert reward_of(left, right, compat=compat) == 1.0
    assert reward_of(f"{left}{first} {items[0]}x", right, compat=compat) == 0.0


@pytest.mark.parametrize(("answer", "expected"), [("1; 2; 3", "1, 2, 3"), ("3;14", "3, 14"), ("(0; 1)", "(0, 1)")])
def test_numbers_in_a_list_may_be_separated_by_semicolons(answer: str, expected: str) -> None:
    assert reward_of(answer, expected) == reward_of(answer, expected, compat=True) == 1.0


def test_a_number_with_thousands_is_not_a_list() -> None:
    assert reward_of("1;234", "1,234") == 0.0
    assert reward_of("1,234; 5", "1234, 5") == 1.0


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("NY City", "New York City"),
        ("TX A&M", "Texas A&M"),
        ("University of TX at Austin", "University of Texas at Austin"),
        ("KS City, MO", "Kansas City, Missouri"),
        ("University of GA Press", "University of Georgia Press"),
        ("VA Tech", "Virginia Tech"),
        ("WA State University", "Washington State University"),
        ("OH River valley", "Ohio River valley"),
    ],
)
def test_a_state_is_abbreviated_inside_a_longer_name(answer: str, expected: str) -> None:
    assert reward_of(answer, expected) == reward_of(answer, expected, compat=True) == 1.0


@pytest.mark.parametrize("answer", ["VA Woolf", "IN Jones", "WA Irving", "GA O'Keeffe", "TN Williams", "MT Clift"])
def test_a_person_named_like_a_state_is_not_abbreviated_except_in_compat(answer: str) -> None:
    short, _, surname = answer.partition(" ")
    (state,) = (name for name, abbreviation in STATES.items() if abbreviation == short.lower())
    assert reward_of(answer, f"{state} {surname}") == 0.0
    assert reward_of(answer, f"{state} {surname}", compat=True) == 1.0


@BOTH
@given(number=st.integers(1, 9999), money=st.sampled_from("\u20ac\u00a3\u00a5\u20b9"), space=st.sampled_from(["", " "]))
def test_a_currency_may_stand_before_or_after_its_number(compat: bool, number: int, money: str, space: str) -> None:
    before, after = f"{money}{space}{number}", f"{number}{space}{money}"
    for answer, expected in [(after, str(number)), (before, str(number)), (before, after), (str(number), after)]:
        assert reward_of(answer, expected, compat=compat) == 0.98
    assert reward_of(f"{money}-{number}", f"-{money}{number}", compat=compat) == 0.98
    assert reward_of(f"{number}{space}$", str(number), compat=compat) == 1.0


def test_two_currencies_are_never_the_same() -> None:
    for answer in ("5 \u00a3", "\u00a35", "$5", "5$", "\u20ac5\u00a3", "--5\u20ac"):
        assert reward_of(answer, "5 \u20ac") == 0.0


@BOTH
@pytest.mark.parametrize("unit", ["km", "cm", "mm", "kg", "m"])
@pytest.mark.parametrize(
    "form", [r"%s", r"\,%s", r"~%s", r"\ %s", r"\text{ %s}", r"\,\text{%s}", r"\;\mathrm{%s}", r"~\text{%s}"]
)
def test_a_unit_may_stand_in_the_box(compat: bool, unit: str, form: str) -> None:
    quantity = "5" + form % unit
    for box in (rf"\boxed{{{quantity}}}", rf"Answer: \boxed{{{quantity}}}", rf"Answer: $\boxed{{{quantity}}}$"):
        answer = MODES["final_answer"](box, compat) or ""
        assert reward_of(answer, "5", compat=compat) == 0.98
        assert reward_of(answer, f"5 {unit}", compat=compat) >= 0.98
        assert reward_of(answer, "6", compat=compat) == 0.0
    assert reward_of("5" + form % "km", "5 kg") == 0.0


LINE_ENDS = ["\n", "\r\n", "\r", "\v", "\f", "\x85", "\u2028", "\u2029"]


@pytest.mark.parametrize("end", LINE_ENDS)
def test_every_line_end_of_python_ends_a_line(end: str) -> None:
    assert MODES["last_line"](f"So we get{end}7{end}", False) == MODES["last_line"](f"So we get{end}7", True) == "7"
    assert MODES["final_answer"](f"Answer: 8{end}Answer: 7{end}Bye", False) == "7"
    assert MODES["final_answer"](f"Answer:{end}7{end}Bye", False) == "7"


@given(
    st.lists(st.text(st.characters(exclude_categories=["Z", "C"]), min_size=1), min_size=1), st.sampled_from(LINE_ENDS)
)
def test_the_last_line_is_what_follows_the_last_line_end(lines: list[str], end: str) -> None:
    assert MODES["last_line"](end.join(lines), False) == lines[-1]


@given(hostile, hostile)
def test_no_text_raises_an_error(text: str, expected: str) -> None:
    for compat in (False, True):
        for mode in MODES.values():
            assert reward_of(mode(text, compat) or "", expected, compat=compat) in (0.0, 0.98, 1.0)


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
        " ",
        "\t,",
        "\u221a(",
        "\u221a ",
        "\\sqrt{",
        "in ",
        "+ ",
        "\\, ",
    ]
    for unit in units:
        text = f"a{unit * (60_000 // len(unit))}b"
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


async def test_a_row_without_an_answer_is_refused_before_the_model_is_asked_except_in_compat() -> None:
    task = {**ROW, "expected_answer": " "}
    failure = await judge(NAME, task, "Answer: Mars")
    assert isinstance(failure, Failure)
    assert (failure.kind, failure.stage) == ("bad_row", "open")
    assert "expected_answer" in failure.cause
    assert (await graded("Answer: Mars", task, compat=True)).reward == 0.0


def test_a_row_without_an_answer_costs_no_token_and_has_no_reward_when_it_is_judged_again() -> None:
    asked: list[Request] = []
    task = {**ROW, "expected_answer": ""}
    (rollout,) = ludus.collect(NAME, model=ScriptedModel(asked.append), input=[task]).rollouts
    assert (rollout.reward, rollout.error and rollout.error.kind, asked) == (None, "bad_row", [])
    assert not StringMatch.has_session


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
