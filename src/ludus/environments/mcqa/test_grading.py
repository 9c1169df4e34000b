"""The grading modes: which letter each extracts from a text."""

from __future__ import annotations

import pytest

from ludus.environments.mcqa.grading import MODES, choices_of

Options = list[dict[str, str | None]]

OPTIONS: Options = [{"A": "iron"}, {"B": "copper"}, {"C": "a tin can"}, {"D": None}]
TEN: Options = [{letter: f"{number} m"} for number, letter in enumerate("ABCDEFGHIJ", start=1)]


def extracted(text: str, mode: str, options: Options = OPTIONS, compat: bool = False) -> str | None:
    return MODES[mode](text, choices_of(options), compat)


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        (r"\boxed{B}", "B"),
        (r"Hm, \boxed{A}. No: \boxed{B}", "B"),
        (r"\boxed{ (B). }", "B"),
        (r"\boxed{\text{\text{ B }}}", "B"),
        (r"\boxed{B: copper}", "B"),
        (r"\boxed{B - copper}", "B"),
        (r"\boxed{b}", None),
        (r"\boxed{\textbf{B}}", None),
        (r"\boxed{A or B}", None),
        (r"\boxed{copper}", None),
        (r"\boxed{E}", None),
        (r"\boxed{D}", None),
        (r"\boxed{}", None),
        (r"\boxed {B}", None),
        (r"\boxed{A} \boxed{B", None),
        ("Answer: B", None),
        ("  \n", None),
    ],
)
def test_strict_takes_only_one_capital_in_the_last_box(text: str, letter: str | None) -> None:
    assert extracted(text, "strict_single_letter_boxed") == letter


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        (r"\boxed{B}", "B"),
        (r"\boxed{COPPER}", "B"),
        (r"\boxed{It is copper, I think.}", "B"),
        (r"\boxed{a  tin  can}", "C"),
        (r"\boxed{coppers}", "B"),
        (r"\boxed{iron or copper}", None),
        (r"\boxed{copper, not iron}", None),
        (r"\boxed{copper, no doubt}", "B"),
        (r"\boxed{copper but only just}", "B"),
        (r"\boxed{copper? No.}", None),
        (r"\boxed{copper is wrong}", None),
        (r"\boxed{b}", None),
        (r"\boxed{gold}", None),
        ("copper", None),
    ],
)
def test_lenient_boxed_also_takes_the_text_of_one_option(text: str, letter: str | None) -> None:
    assert extracted(text, "lenient_boxed") == letter


@pytest.mark.parametrize(
    "text", ["not copper", "It isn't copper", "anything but copper", "no copper", "neither copper"]
)
def test_a_negated_option_is_not_chosen_except_in_compat(text: str) -> None:
    assert extracted(rf"\boxed{{{text}}}", "lenient_boxed") is None
    assert extracted(rf"\boxed{{{text}}}", "lenient_boxed", compat=True) == "B"


@pytest.mark.parametrize("text", ["coppersmith", "phosphor-uncopper"])
def test_an_option_inside_a_longer_word_is_not_chosen_except_in_compat(text: str) -> None:
    assert extracted(rf"\boxed{{{text}}}", "lenient_boxed") is None
    assert extracted(rf"\boxed{{{text}}}", "lenient_boxed", compat=True) == "B"


@pytest.mark.parametrize("text", ["14 m", "-4 m", "2.4 m", "4 metres"])
def test_an_option_inside_a_longer_number_or_unit_is_not_chosen_except_in_compat(text: str) -> None:
    assert extracted(rf"\boxed{{{text}}}", "lenient_boxed", TEN) is None
    assert extracted(rf"\boxed{{{text}}}", "lenient_boxed", TEN, compat=True) == "D"


def test_an_option_inside_a_longer_option_does_not_make_it_ambiguous_except_in_compat() -> None:
    options: Options = [{"A": "valid"}, {"B": "not valid"}]
    assert extracted(r"\boxed{not valid}", "lenient_boxed", options) == "B"
    assert extracted(r"\boxed{valid}", "lenient_boxed", options) == "A"
    assert extracted(r"\boxed{valid or not valid}", "lenient_boxed", options) is None
    assert extracted(r"\boxed{not valid}", "lenient_boxed", options, compat=True) is None


def test_options_with_the_same_text_are_ambiguous_and_a_blank_option_is_never_chosen() -> None:
    assert extracted(r"\boxed{iron}", "lenient_boxed", [{"A": "iron"}, {"B": "Iron"}]) is None
    assert extracted(r"\boxed{gold}", "lenient_boxed", [{"A": "iron"}, {"B": " "}]) is None


def test_options_in_scripts_without_spaces_are_found() -> None:
    options: Options = [{"A": "心臓"}, {"B": "肺"}]
    assert extracted(r"\boxed{答えは心臓です}", "lenient_boxed", options) == "A"


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("Answer: B", "B"),
        ("so the ANSWER : b\nbecause", "B"),
        (r"Answer: \text{B}", "B"),
        ("Answer: Copper", "B"),
        ("Answer:\nB", "B"),
        ("Answer: A\nAnswer: B", "A"),
        ("Answer: B.", None),
        ("**Answer:** B", None),
        ("Answer: B because", None),
        ("Answer: D", None),
        ("Answer:", None),
        (r"\boxed{B}", None),
    ],
)
def test_answer_colon_takes_only_an_option_that_fills_the_rest_of_the_line(text: str, letter: str | None) -> None:
    assert extracted(text, "lenient_answer_colon") == letter


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("**Answer:** B", "B"),
        ("__Answer__: (b)", "B"),
        ("Answer: **B) copper**", "B"),
        ("Answer: The option is B.", "B"),
        (r"Answer: $\boxed{B}$", "B"),
        ("Answer: ب", "B"),
        ("Answer: \uff22", "B"),
        ("Answer: A\nOn reflection:\nAnswer: B", "B"),
        ("Answer: B\nAnswer: A or C", "B"),
        ("Answer: B\nAnswer: E", "B"),
        ("Answer: A/B", None),
        ("Answer: (A) & (B)", None),
        ("Answer: A, B", None),
        ("Answer: A, OR (B)", None),
        ("Answer: B or B", "B"),
        ("Answer: B or E", "B"),
        ("Answer: a or b", None),
        ("Answer: copper", None),
        ("Answer: E (not B)", None),
        ("Answer: **e**, and not B", None),
        ("Answer: B\nAnswer: E (not A)", "B"),
        ("Answer: I reckon it is B", "B"),
        ("Answer: I (not B)", None),
        ("The answer is B", None),
    ],
)
def test_answer_colon_md_ignores_markdown_and_reads_the_last_answer_first(text: str, letter: str | None) -> None:
    assert extracted(text, "lenient_answer_colon_md") == letter


def test_words_of_one_letter_are_not_choices_except_in_compat() -> None:
    mode = "lenient_answer_colon_md"
    assert extracted("Answer: a red metal", mode) is None
    assert extracted("Answer: a red metal", mode, compat=True) == "A"
    assert extracted("Answer: I think B", mode, TEN) == "B"
    assert extracted("Answer: I think B", mode, TEN, compat=True) == "I"
    assert extracted("Answer: I", mode, TEN) == "I"


def test_a_leading_letter_that_is_not_an_option_ends_the_search_except_in_compat() -> None:
    text = "Answer: E (not B)"
    assert extracted(text, "lenient_answer_colon_md") is None
    assert extracted(text, "lenient_answer_colon_md", compat=True) == "B"
    assert extracted(text, "lenient_answer_colon_md", TEN) == "E"


@pytest.mark.usefixtures("processor_limit")
def test_grading_hostile_text_takes_linear_time() -> None:
    hostile = [
        "\\boxed{" + "1 m " * 40_000 + "}",
        "\\boxed{" + "not " * 40_000 + "}",
        "Answer: " + "A " * 100_000,
        "Answer: A" + " " * 100_000 + "x",
        "Answer: " + "I think " * 40_000,
        "Answer: ? " * 40_000,
    ]
    for text in hostile:
        for mode in MODES:
            extracted(text, mode, TEN)
            extracted(text, mode, TEN, compat=True)
