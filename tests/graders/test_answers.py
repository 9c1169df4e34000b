"""Answer extraction is exact for well-formed texts, and neither raises nor hangs for hostile ones."""

from __future__ import annotations

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

#: Text with many of the marks that the functions search for.
marks = ["\\boxed{", "\\text{", "{", "}", "\\", "answer", "Answer:", ":", "*", "\n", " ", "B", "ب"]
hostile = st.one_of(st.text(), st.lists(st.sampled_from(marks)).map("".join))

#: Text with matching braces and without a box.
plain = st.text(st.characters(exclude_characters="{}\\"))
balanced = st.recursive(plain, lambda inner: st.lists(inner.map(lambda text: "{" + text + "}")).map("".join))


@given(hostile)
def test_no_text_makes_an_extraction_function_raise(text: str) -> None:
    for function in FUNCTIONS:
        found = function(text)
        assert found is None or isinstance(found, str | list)
    for part in (last_boxed(text), first_answer(text), unwrap_text(text), *marked_answers(text)):
        assert part is None or part in text


@given(before=hostile, value=balanced, after=plain)
def test_last_boxed_returns_the_boxed_value_unchanged(before: str, value: str, after: str) -> None:
    assert last_boxed(f"{before} \\boxed{{{value}}}{after}") == value


@given(value=balanced, depth=st.integers(0, 5))
def test_unwrap_text_removes_any_number_of_nested_wrappers(value: str, depth: int) -> None:
    assert unwrap_text("\\text{ " * depth + value + " }" * depth) == value.strip()


@pytest.mark.parametrize(
    "text",
    [
        "\\boxed{" * 300_000,
        "\\boxed{" + "{" * 300_000,
        "\\boxed{" + "{" * 300_000 + "}" * 300_000,
        "\\text{" * 300_000 + "}" * 300_000,
        "\\" * 300_000,
        "answer" * 300_000,
        "answer:" * 300_000,
        "answer" + " " * 300_000,
        "answer:" + "\n" * 300_000,
        "answer:" + "*" * 300_000,
    ],
    ids=lambda text: repr(text[:20]),
)
@pytest.mark.usefixtures("processor_limit")
def test_extraction_takes_linear_time_on_hostile_text(text: str) -> None:
    for function in FUNCTIONS:
        function(text)


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
def test_last_boxed_matches_braces(text: str, content: str | None) -> None:
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
def test_unwrap_text_removes_only_a_wrapper_around_the_whole_text(text: str, content: str) -> None:
    assert unwrap_text(text) == content


def test_first_answer_stops_at_the_end_of_the_line() -> None:
    assert first_answer("Well.\nANSWER :  B \nAnswer: C") == "B"
    assert first_answer("Answer:\n\nB") == "B"
    assert first_answer("The answer is B") is None


def test_marked_answers_come_last_first_with_any_emphasis() -> None:
    text = "Answer: A Answer: B\n**Answer:** C\n__Answer__: D\n### Final answer\uff1a E"
    assert list(marked_answers(text)) == ["E", "D", "C", "B", "A"]


def test_latin_letters_replaces_arabic_and_bengali_letters_only_where_they_stand_alone() -> None:
    assert latin_letters("ب") == "B"
    assert latin_letters("(ঢ)") == "(D)"
    assert latin_letters("\uff23です") == "Cです"
    assert latin_letters("باب") == "باب"
    assert latin_letters("বি") == "বি"
