"""Answer extraction: exact where a text is well formed, and calm where it is hostile."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludus.graders.answers import (
    first_answer,
    last_boxed,
    latin_letters,
    marked_answers,
    normalised,
    unwrap_text,
)

FUNCTIONS: list[Callable[[str], Any]] = [
    last_boxed,
    unwrap_text,
    normalised,
    first_answer,
    latin_letters,
    lambda text: list(marked_answers(text)),
]

#: Text in which the marks that the functions look for are frequent.
marks = ["\\boxed{", "\\text{", "{", "}", "\\", "answer", "Answer:", ":", "*", "\n", " ", "B", "ب"]
hostile = st.one_of(st.text(), st.lists(st.sampled_from(marks)).map("".join))

#: Text whose braces match and which holds no box of its own.
plain = st.text(st.characters(exclude_characters="{}\\"))
balanced = st.recursive(plain, lambda inner: st.lists(inner.map(lambda text: "{" + text + "}")).map("".join))


@given(hostile)
def test_no_text_makes_an_extraction_raise(text: str) -> None:
    for function in FUNCTIONS:
        found = function(text)
        assert found is None or isinstance(found, str | list)
    for part in (last_boxed(text), first_answer(text), unwrap_text(text), *marked_answers(text)):
        assert part is None or part in text


@given(before=hostile, value=balanced, after=plain)
def test_a_boxed_value_comes_back_as_it_went_in(before: str, value: str, after: str) -> None:
    assert last_boxed(f"{before} \\boxed{{{value}}}{after}") == value


@given(value=balanced, depth=st.integers(0, 5))
def test_wrappers_come_off_however_many_there_are(value: str, depth: int) -> None:
    assert unwrap_text("\\text{ " * depth + value + " }" * depth) == value.strip()


@pytest.mark.parametrize(
    "text",
    [
        "\\boxed{" * 100_000,
        "\\boxed{" + "{" * 100_000,
        "\\boxed{" + "{" * 100_000 + "}" * 100_000,
        "\\text{" * 100_000 + "}" * 100_000,
        "\\" * 100_000,
        "answer" * 100_000,
        "answer:" * 100_000,
        "answer" + " " * 100_000,
        "answer:" + "\n" * 100_000,
        "answer:" + "*" * 100_000,
    ],
    ids=lambda text: repr(text[:20]),
)
def test_hostile_text_takes_time_in_proportion_to_its_length(text: str) -> None:
    began = time.process_time()
    for function in FUNCTIONS:
        function(text)
    assert time.process_time() - began < 5  # what is quadratic here takes minutes


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (r"\boxed{B}", "B"),
        (r"\boxed{A} and then \boxed{B}", "B"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\left\{ x \right.}", r"\left\{ x \right."),
        (r"\boxed{}", ""),
        (r"\boxed{A} but \boxed{B", None),
        (r"\boxed {B}", None),
        ("B", None),
    ],
)
def test_the_last_box_is_read_with_its_braces_matched(text: str, content: str | None) -> None:
    assert last_boxed(text) == content


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (r"\text{B}", "B"),
        (r" \text{ \text{B} } ", "B"),
        (r"\text{A} or \text{B}", r"\text{A} or \text{B}"),
        (r"\textbf{B}", r"\textbf{B}"),
        (r"\text{B", r"\text{B"),
    ],
)
def test_only_a_wrapper_around_everything_comes_off(text: str, content: str) -> None:
    assert unwrap_text(text) == content


def test_the_first_answer_ends_with_its_line() -> None:
    assert first_answer("Well.\nANSWER :  B \nAnswer: C") == "B"
    assert first_answer("Answer:\n\nB") == "B"
    assert first_answer("The answer is B") is None


def test_marked_answers_come_last_first_whatever_emphasis_they_wear() -> None:
    text = "Answer: A Answer: B\n**Answer:** C\n__Answer__: D\n### Final answer\uff1a E"
    assert list(marked_answers(text)) == ["E", "D", "C", "B", "A"]


def test_letters_of_other_scripts_count_only_where_they_stand_alone() -> None:
    assert latin_letters("ب") == "B"
    assert latin_letters("(ঢ)") == "(D)"
    assert latin_letters("\uff23です") == "Cです"
    assert latin_letters("باب") == "باب"
    assert latin_letters("বি") == "বি"
