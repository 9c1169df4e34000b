"""Mathematical equality: the verdicts of `math-verify`, and our corrections of them."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("math_verify")

from sympy import Add, Integer, Mul, Pow, factorial

from ludus import UserError
from ludus.graders.math import MathResult, check_math, is_readable, require_math
from ludus.graders.math_child import MathComparison, compare, undelimited
from ludus.graders.math_size import MOST_BITS, bits, too_large
from ludus.graders.units import unit_of
from ludus.runtime.processes import shared_pool

on_one_loop = pytest.mark.asyncio(loop_scope="module")

#: Ten thousand openings of a formula, none closed: the library's patterns need minutes.
ENDLESS = "\\[\n" * 10_000


@pytest_asyncio.fixture(loop_scope="module", scope="module", autouse=True)
async def _one_pool_for_all() -> AsyncIterator[None]:
    async with shared_pool():
        yield


def equal(expected: str, answer: str, compat: bool = False) -> bool | None:
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
        ("111_2", "111"),
        ("7", "7_{8}"),
        ("AB", "BA"),
        ("5", r"\leq 5"),
        ("5", r"\ge 5"),
        ("5", r"\in 5"),
        ("5", r"\lesssim 5"),
        ("5", r"\gg 5"),
        ("5", r"\propto 5"),
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
        ("101_2", "101_{(2)}"),
        ("101", "101_{10}"),
        ("AB", r"\text{AB}"),
        (r"\leq 5", r"\leq 5"),
        ("5", r"\approx 5"),
        ("x_1", "x_{1}"),
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
    assert compare("7", r"\boxed{14/2}", False) == MathComparison(True, "7")
    assert compare("7", r"\boxed{8}", False) == MathComparison(False, "8")
    assert compare("7", "I do not know", False) == MathComparison(False)
    assert compare("", r"\boxed{7}", False) == MathComparison(False, readable=False)


@pytest.mark.parametrize(
    ("expected", "answer"),
    [
        ("2(2+\u221a3)", "(1+\u221a3)\u00b2"),
        (r"2(2+\sqrt{3})", "(1+\u221a3)\u00b2"),
        (r"2(2+\sqrt{3})", r"(1+\sqrt3)^2"),
        (r"\frac{\sin x}{1+\cos x}", r"\tan\frac{x}{2}"),
        (r"\cosh^2 x", r"1+\sinh^2 x"),
        (r"x=2(2+\sqrt3)", r"(1+\sqrt3)^2"),
        (r"\{2(2+\sqrt3),1\}", r"\{1,(1+\sqrt3)^2\}"),
        (r"[0,2(2+\sqrt3)]", r"[0,(1+\sqrt3)^2]"),
        ("1000000", r"\frac{1000000!}{999999!}"),
        (r"(a+b+c)^{60}", r"((a+b+c)^{30})^2"),
        (r"\sqrt{x^2}", "|x|"),
        ("2i", "(1+i)^2"),
    ],
)
def test_answers_with_the_same_values_are_equal(expected: str, answer: str) -> None:
    assert equal(expected, answer)


@pytest.mark.parametrize(
    ("expected", "answer"),
    [
        (r"2(2+\sqrt{3})", r"(1+\sqrt3)^2+10^{-60}"),
        ("7", "7+10^{-400}"),
        ("2^{1000}", "2^{1000}+1"),
        ("|x|", "x"),
        (r"\sqrt{x^2}", "x"),
        ("262537412640768744", r"e^{\pi\sqrt{163}}"),
        (r"\{\sqrt2,\sqrt3\}", r"\{\sqrt2,\sqrt5\}"),
        (r"(a+b)^{60}", r"(a-b)^{60}"),
        (r"\frac{1}{x}", r"\frac{x}{x}"),
    ],
)
def test_answers_whose_values_differ_are_not_equal_however_small_the_difference(expected: str, answer: str) -> None:
    assert equal(expected, answer) is False


roots = st.builds(r"{}\sqrt{{{}}}".format, st.integers(1, 9), st.integers(2, 60))
terms = st.one_of(st.integers(1, 99).map(str), roots, st.sampled_from(["x", r"\pi", r"\frac{x}{3}", r"\sin x"]))
formulas = st.lists(terms, min_size=2, max_size=4).map("+".join)


@settings(max_examples=15)
@given(formulas, formulas)
def test_a_product_equals_its_factors_in_any_order_and_not_one_more(left: str, right: str) -> None:
    square = f"({left})({right})({left})"
    assert equal(square, f"({right})({left})^2")
    assert equal(square, f"({right})({left})^2+1") is False


BOMBS = [
    "9^{9^{9}}",
    "9^{9^{9^{9}}}",
    "2^{-2^{100}}",
    "(x+1)^{10^{10}}",
    "e^{e^{e^{e}}}",
    "(10^{100})!",
    "((10!)!)!",
    r"\binom{10^{9}}{10^{8}}",
    r"\prod_{k=1}^{10^{9}} k^{k}",
    r"\sin(10^{10^{10}})",
    r"\{1, 9^{9^{9}}\}",
    r"\begin{pmatrix}1\\9^{9^{9}}\end{pmatrix}",
    r"x=9^{9^{9}}",
    "(" * 30 + "7" + ")" * 30,
    r"\frac{1}{1+" * 30 + "7" + "}" * 30,
    "+".join(["1"] * 2_000),
    "7" * 2_001,
    ", ".join(map(str, range(100))),
    ";".join(map(str, range(30))),
]


@pytest.mark.parametrize("answer", BOMBS)
@on_one_loop
async def test_an_answer_that_is_too_large_to_compute_is_wrong_by_its_structure(answer: str) -> None:
    for compat in (False, True)[: 1 + (len(answer) < 50 and ";" not in answer)]:
        found = await check_math("7", rf"\boxed{{{answer}}}", compat=compat)
        assert (found.equal, found.failure) == (False, None)
        assert found.refused
        assert found.refused.startswith("the answer ")


def test_a_long_list_is_right_if_the_expected_answer_is_as_long() -> None:
    numbers = ", ".join(map(str, range(12, 42)))
    assert equal(numbers, numbers)
    assert equal("1000000", "1,000,000")


def test_a_large_answer_is_right_if_the_expected_answer_is_written_the_same() -> None:
    for answer in ("9^{9^{9}}", "(10^{100})!", "+".join(["x"] * 60)):
        assert equal(answer, answer)
        assert equal(answer, answer, compat=True)
    assert equal("9^{9^9}", "7") is False


@on_one_loop
async def test_an_answer_to_an_expected_answer_that_nobody_can_compute_has_no_verdict() -> None:
    found = await check_math("9^{9^9}", r"\boxed{9^{387420489}}")
    assert (found.equal, found.failure and found.failure.kind) == (None, "undecided")


whole = st.recursive(
    st.integers(-50, 50).map(Integer),
    lambda inner: st.one_of(
        st.lists(inner, min_size=2, max_size=4).map(lambda parts: Add(*parts, evaluate=False)),
        st.lists(inner, min_size=2, max_size=4).map(lambda parts: Mul(*parts, evaluate=False)),
        st.builds(lambda base, power: Pow(base, power, evaluate=False), inner, st.integers(0, 6).map(Integer)),
        st.integers(0, 30).map(lambda number: factorial(Integer(number), evaluate=False)),
    ),
    max_leaves=8,
)


@given(whole)
def test_no_number_has_more_binary_digits_than_its_bound(expression: Any) -> None:
    assert int(expression.doit()).bit_length() <= bits(expression) + 1


@given(st.lists(st.integers(3, 99), min_size=3, max_size=12), st.integers(0, 3))
def test_every_tower_of_powers_is_refused_wherever_it_stands(tower: list[int], depth: int) -> None:
    expression: Any = Integer(tower[-1] + 8)
    for base in reversed(tower[:-1]):
        expression = Pow(Integer(base), expression, evaluate=False)
    for _ in range(depth):
        expression = Add(Mul(expression, Integer(2), evaluate=False), Integer(1), evaluate=False)
    assert "power" in (too_large(expression) or "")


@given(st.integers(2, 99), st.integers(0, MOST_BITS // 8))
def test_a_plain_power_is_not_refused(base: int, power: int) -> None:
    assert too_large(Pow(Integer(base), Integer(power), evaluate=False)) is None


@on_one_loop
async def test_blank_expected_answers_are_not_readable_and_all_others_are() -> None:
    for blank in ("", " ", "$$", r"\(\)", r"\text{}", r"\text{ }", "}"):
        assert not await is_readable(blank), blank
    for answer in ("7", r"\emptyset", "yes", "???", "-", r"\begin{pmatrix}1\end{pmatrix}"):
        assert await is_readable(answer), answer


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


@on_one_loop
async def test_an_answer_that_uses_up_its_cpu_time_has_no_verdict() -> None:
    assert await check_math("7", r"\boxed{7}") == MathResult(equal=True, extracted="7")
    for compat in (False, True):
        found = await check_math("7", ENDLESS, seconds=0.3, compat=compat)
        assert (found.equal, found.failure and found.failure.kind) == (None, "timeout")
    assert (await check_math("7", r"\boxed{7}")).equal


pieces = [
    r"\frac",
    r"\sqrt",
    r"\sum_{k=1}^",
    r"\text{",
    r"\begin{pmatrix}",
    r"\end{pmatrix}",
    r"\{",
    r"\}",
    r"\int",
    "{",
    "}",
]
pieces += [
    "(",
    ")",
    "[",
    "]",
    "^",
    "_",
    "&",
    r"\\",
    "=",
    "<",
    r"\le",
    ",",
    ";",
    "!",
    "|",
    "1",
    "23",
    "x",
    "i",
    "f(x)",
    " ",
    "%",
]
pieces += [
    r"\infty",
    r"\pi",
    r"\cup",
    r"\emptyset",
    r"\mathbb{R}",
    r"\binom",
    r"\lim_{x\to 0}",
    "\u221a",
    "\u00b2",
    "0.5",
    "/",
    "+",
    "-",
]


@settings(max_examples=60)
@given(st.lists(st.sampled_from(pieces), max_size=10).map("".join), st.lists(st.sampled_from(pieces), max_size=6))
def test_any_answer_gets_a_verdict_without_an_error(answer: str, expected: list[str]) -> None:
    for gold in ("7", "".join(expected)):
        found = compare(gold, rf"\boxed{{{answer}}}", False)
        assert found.equal in (True, False) or found.reason


@on_one_loop
async def test_hostile_texts_are_never_right() -> None:
    hostile = [
        "\\boxed{" + "{" * 20_000,
        "$" * 20_001,
        "\\boxed{8}" * 300,
        "(" * 20_000,
        "$" + "(" * 500 + "7" + ")" * 500 + "$",
    ]
    assert not any([(await check_math("7", text, seconds=2.0)).equal for text in hostile])


@pytest.mark.parametrize(
    ("expected", "answer"),
    [
        (r"\lfloor n/2 \rfloor", r"\lfloor n/3 \rfloor"),
        (r"\lceil \frac n7\rceil", r"\lceil \frac n8\rceil"),
        ("|x-10|", "10-x"),
        ("|x-5|+|x-7|", "12-2x"),
        (r"\sqrt{(x-10)^2}", "10-x"),
        (r"\min(n,10)", r"\min(n,20)"),
        (r"\max(0,x-5)", "0"),
        (r"\arcsin(\sin(x/4))", "x/4"),
        (r"\pi+e^{-500}", r"\pi"),
        (r"\sqrt2+10^{-300}", r"\sqrt2"),
        ("x e^{-1000}+1", "1"),
        (r"\tanh(100x+5000)", "1"),
    ],
)
def test_agreement_at_some_points_or_to_some_digits_is_no_proof(expected: str, answer: str) -> None:
    assert not equal(expected, answer)


@pytest.mark.parametrize(
    ("expected", "answer"),
    [
        (r"\lfloor \frac{2n}{4}\rfloor", r"\lfloor n/2\rfloor"),
        (r"\frac{1}{\sqrt{x}}", r"\frac{\sqrt{x}}{x}"),
        (r"\sqrt{5+2\sqrt6}", r"\sqrt2+\sqrt3"),
        (r"\frac{\sin x}{1+\cos x}", r"\tan(x/2)"),
        ("2^{100}", "4^{50}"),
    ],
)
def test_right_answers_with_branches_and_large_powers_match(expected: str, answer: str) -> None:
    assert equal(expected, answer)
