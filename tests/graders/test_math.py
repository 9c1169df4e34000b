"""Mathematical equality: the verdicts of `math-verify`, and our corrections of them."""

from __future__ import annotations

import sys

import pytest

pytest.importorskip("math_verify")

from ludus import UserError
from ludus.graders.math import MathResult, check_math, require_math
from ludus.graders.math_child import compare, undelimited
from ludus.graders.units import unit_of
from ludus.runtime.processes import shared_pool


def equal(expected: str, answer: str, compat: bool = False) -> bool:
    return compare(expected, rf"So it is $\boxed{{{answer}}}$.", compat)[0]


@pytest.mark.parametrize(
    ("expected", "answer"),
    [
        ("7", "7.0"),
        ("1000", "1{,}000"),
        (r"\frac{1}{2}", r"50\%"),
        ("0.5", r"\frac12"),
        (r"\(\sqrt{8}\)", r"2\sqrt{2}"),
        ("$x^2-1$", "(x-1)(x+1)"),
        ("x=5", "5"),
        ("1,2,3", "3,2,1"),
        (r"\{1,2\}", "2,1"),
        ("(0,1]", r"\left(0,1\right]"),
        (r"90^\circ", "90"),
        (r"5\text{ cm}", "5"),
        ("7 apples", "7"),
        (r"\text{Yes}", "yes"),
        (r"\sqrt{2}", "1.414214"),
    ],
)
def test_equal_answers_match_in_any_notation(expected: str, answer: str) -> None:
    assert equal(expected, answer)
    assert equal(expected, answer, compat=True)


@pytest.mark.parametrize(
    ("expected", "answer"),
    [
        ("7", "-7"),
        ("7", "8"),
        ("7", r"7\text{ or }8"),
        ("(1,2)", "(2,1)"),
        ("[0,1]", "(0,1)"),
        (r"\sqrt{2}", "1.41"),
        ("x=5", "y=5"),
        ("yes", "no"),
        ("7", r"\text{unknown}"),
        ("7", ""),
        ("", "7"),
    ],
)
def test_different_answers_do_not_match(expected: str, answer: str) -> None:
    assert not equal(expected, answer)
    assert not equal(expected, answer, compat=True)


@pytest.mark.parametrize(
    ("expected", "answer"),
    [
        ("12345", r"12\,345"),
        ("1234567", r"1\,234\,567"),
        ("12345", "12 345"),
        ("-1", "-1."),
        (r"\emptyset", r"\varnothing"),
        (r"e^{i\pi}", "-1"),
        ("i^2", "-1"),
        ("(1+i)^2", "2i"),
        ("5", "|3+4i|"),
    ],
)
def test_notation_that_the_library_misreads_matches_except_in_compat(expected: str, answer: str) -> None:
    assert equal(expected, answer)
    assert not equal(expected, answer, compat=True)


@pytest.mark.parametrize(
    ("expected", "answer"),
    [
        ("stop", "post"),
        ("cat", "act"),
        (r"5\text{ kg}", r"5\text{ km}"),
        (r"5\text{ cm}", r"5\text{ cm}^2"),
        (r"\$5", r"5\text{ cents}"),
        ("101_2", "101_3"),
        ("(1,2)", "1,2"),
        ("(1,2)", r"\{1,2\}"),
        ("(1,2,3)", "1,2,3"),
        (r"\{1,2\}", "(1,2)"),
        ("7", "8=7"),
        ("0.0000004", "0.0"),
    ],
)
def test_false_matches_of_the_library_are_rejected_except_in_compat(expected: str, answer: str) -> None:
    assert not equal(expected, answer)
    assert equal(expected, answer, compat=True)


@pytest.mark.parametrize(
    ("expected", "answer"),
    [
        ("ab", "ba"),
        ("xyz", "zyx"),
        (r"5\text{ kg}", r"5\text{ kilograms}"),
        (r"10\text{ m/s}", r"10\text{ meters per second}"),
        ("101_2", "101_{2}"),
        ("101_2", "101"),
        ("7", "3+4=7"),
        ("3.14", r"\pi=3.14"),
        ("1,2", "(1,2)"),
        ("3i", "3i"),
    ],
)
def test_the_corrections_reject_no_right_answer(expected: str, answer: str) -> None:
    assert equal(expected, answer)


@pytest.mark.parametrize(
    ("text", "right"),
    [
        ("The answer is 7", True),
        ("The answer is 7 or 8", False),
        ("The answer is either $7$ or $8$.", False),
        ("Is the answer 8 or 9? The answer is 7", True),
        ("The answer is 7 or 7", True),
        ("7", True),
        ("nothing", False),
    ],
)
def test_a_choice_between_two_answers_is_wrong(text: str, right: bool) -> None:
    assert compare("7", text, False)[0] is right


@pytest.mark.parametrize(
    "text", [r"\boxed{\neq 7}", r"\boxed{\ne 7}", r"\boxed{\not= 7}", r"$7$ \boxed{}", r"$7$ \boxed{ }"]
)
def test_a_denial_or_an_empty_box_is_wrong(text: str) -> None:
    assert compare("7", text, False)[0] is False


def test_compare_returns_the_answer_as_the_library_read_it() -> None:
    assert compare("7", r"\boxed{14/2}", False) == (True, "7", True)
    assert compare("7", r"\boxed{8}", False) == (False, "8", True)
    assert compare("7", "I do not know", False) == (False, None, True)
    assert compare("", r"\boxed{7}", False) == (False, None, False)


def test_delimiters_around_the_expected_answer_are_removed() -> None:
    for text in ("7", "$7$", r"\(7\)", " $7$ "):
        assert undelimited(text) == "7"
    assert undelimited("$") == "$"


@pytest.mark.parametrize(
    ("answer", "unit"),
    [
        (r"5\text{ kg}", "kg"),
        ("5kg", "kg"),
        (r"5\,\mathrm{cm}^{2}", "cm2"),
        ("5 square centimetres", "cm2"),
        (r"10\text{ km/h}", "km/h"),
        ("10 kmh", "km/h"),
        (r"90^\circ", "deg"),
        (r"\$5", "dollar"),
        ("7 apples", None),
        ("12", None),
        ("x", None),
        (r"\text{yes}", None),
        ("", None),
    ],
)
def test_unit_of_gives_each_unit_one_spelling(answer: str, unit: str | None) -> None:
    assert unit_of(answer) == unit


def test_a_missing_math_verify_raises_an_error_with_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    require_math()
    monkeypatch.setitem(sys.modules, "math_verify", None)
    with pytest.raises(UserError, match=r"math-verify is not installed. Install it with: pip install .*\[math\]'"):
        require_math()


async def test_hostile_answers_are_stopped_when_their_cpu_time_is_spent() -> None:
    hostile = [
        r"\boxed{9^{9^{9}}}",
        r"\boxed{(10^{100})!}",
        "\\boxed{" + "(" * 2_000 + "7" + ")" * 2_000 + "}",
        "\\boxed{" + "{" * 20_000,
        "$" * 20_001,
        "\\boxed{7}" * 300,
    ]
    async with shared_pool():
        assert await check_math("7", r"\boxed{7}") == MathResult(equal=True, extracted="7")
        results = [await check_math("7", text, seconds=0.3) for text in hostile]
    assert results[0] == MathResult(equal=False, finished=False)
    assert not any(result.equal for result in results[:-1])
