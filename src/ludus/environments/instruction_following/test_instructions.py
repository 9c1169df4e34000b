"""For each instruction: a text that follows it, a text that does not, and hostile texts."""

from __future__ import annotations

import re
import sys
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ludus.environments.instruction_following.instructions import INSTRUCTIONS, InstructionError, follows
from ludus.environments.instruction_following.instructions.language import Language, detected
from ludus.errors import UserError

ENGLISH = "the old lighthouse stands above the harbour and its light can be seen from far away"
GERMAN = "Der alte Leuchtturm steht oberhalb des Hafens und sein Licht ist von weitem zu sehen."
PROMPT = {"prompt_to_repeat": "Name two birds."}
PHRASE = {"phrase": "Small boats leave the harbour early", "small_n": 2}
TWICE = "Small boats leave our harbour early, then Small ships leave the harbour early"
TEA = "We drink tea. You like milk.\n***\nThey eat bread. I want soup.\n***\nShe has rice. He cooks fish."

#: For every instruction: arguments, a text that follows it, and a text that does not.
CASES: dict[str, tuple[dict[str, Any], str, str]] = {
    "change_case:capital_word_frequency": (
        {"capital_frequency": 2, "capital_relation": "at least"},
        "NASA and ESA agree.",
        "Only NASA agrees.",
    ),
    "change_case:english_capital": ({}, f"{ENGLISH}.".upper(), f"{ENGLISH}."),
    "change_case:english_lowercase": ({}, f"{ENGLISH}.", GERMAN.lower()),
    "combination:repeat_prompt": (PROMPT, "name two birds. Owl and wren.", "Owl and wren. Name two birds."),
    "combination:two_responses": ({}, "Owl\n******\nWren", "Owl ****** owl ****** wren"),
    "copy:copy": (PROMPT, " NAME two birds.\n", "Name two birds. Owl."),
    "copy:copying_multiple": (PROMPT | {"N": 2}, "Name two birds.******name two birds.", "Name two birds."),
    "copy:copying_simple": (PROMPT, "Name two birds.", "Name two birds"),
    "copy:repeat_phrase": (PHRASE, TWICE, TWICE.replace("our", "my own")),
    "count:count_increment_word": ({"keyword1": "owl", "keyword2": "wren"}, "Owl, wren, Wren.", "Owl, wren."),
    "count:count_unique": ({}, "No word, here, occurs twice.", "A word is a word"),
    "count:counting_composition": ({"n_sent": 2, "n_words": 3}, TEA, TEA.replace("tea", "green tea")),
    "count:lowercase_counting": ({"N": 2}, "TWO small words HERE", "now there are four"),
    "detectable_content:number_placeholders": ({"num_placeholders": 2}, "[name], [street]", "[name], [str\neet]"),
    "detectable_content:postscript": ({"postscript_marker": "P.S."}, "Bye.\n\np. s. Call me.", "Bye. PS call me"),
    "detectable_format:bigram_wrapping": ({}, "<<we are>> <<at sea>>", "<<we are>> at sea"),
    "detectable_format:constrained_response": ({}, "Well. My answer is maybe.", "My answer is perhaps."),
    "detectable_format:json_format": ({}, '```json\n{"a": [1]}\n```', "{'a': 1}"),
    "detectable_format:multiple_sections": (
        {"section_spliter": "Part", "num_sections": 2},
        "Part 1\nDawn\nPart 2\nDusk",
        "Part 1\nDawn\npart 2\nDusk",
    ),
    "detectable_format:number_bullet_lists": ({"num_bullets": 2}, "Two:\n* owl\n  - wren", "* owl\n**wren**"),
    "detectable_format:number_highlighted_sections": ({"num_highlights": 2}, "*owl* and **wren**", "**owl** * *"),
    "detectable_format:sentence_hyphens": ({}, "Dawn comes.-Owls sleep.", "Dawn comes. - Owls sleep."),
    "detectable_format:square_brackets": ({}, "[owl] [and] [wren]", "[owl and] [wren]"),
    "detectable_format:title": ({}, "<<Birds>>\nOwls.", "<<>>\nOwls."),
    "first_word:first_word_answer": ({"first_word": "owls"}, "Owls sleep.", "The owls sleep."),
    "first_word:first_word_sent": ({"first_word": "owls"}, "Owls sleep. Owls dream!", "Owls sleep. They dream."),
    "keywords:exclude_word_harder": ({"keyword": "owl", "instruction": "Draw an owl"}, "A wren, owlish.", "an owl is"),
    "keywords:existence": ({"keywords": ["owl", "sea"]}, "Owls overseas", "Owls on land"),
    "keywords:forbidden_words": ({"forbidden_words": ["owl", "sea"]}, "Owls overseas", "An OWL."),
    "keywords:frequency": ({"keyword": "owl", "frequency": 2, "relation": "less than"}, "one owl", "owl, owls"),
    "keywords:keyword_specific_position": (
        {"keyword": "owl", "n": 2, "m": 3},
        "Look. An old owl.",
        "Look, an old owl.",
    ),
    "keywords:letter_frequency": ({"letter": "O", "let_frequency": 2, "let_relation": "at least"}, "Oslo", "owl"),
    "keywords:no_adjacent_consecutive": ({}, "owls and wrens", "an Ape buys cheese"),
    "keywords:palindrome": ({}, "we saw one kayak there", "we saw one canoe there"),
    "keywords:start_end": ({}, "Owls are owls", "Owls are owls."),
    "keywords:word_count_different_numbers": (
        {"keyword": "owl", "frequency": 2, "relation": "at least"},
        "owl, owl",
        "owl, wren",
    ),
    "keywords:word_once": ({"keyword": "owl"}, "an Owl", "an owl, owls"),
    "language:response_language": ({"language": "de"}, GERMAN, ENGLISH),
    "last_word:last_word_answer": ({"last_word": "owl"}, "I saw an Owl!", "An owl saw me"),
    "last_word:last_word_sent": ({"last_word": "owl"}, "An owl. One owl?", "An owl. One wren."),
    "length_constraints:nth_paragraph_first_word": (
        {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "owls"},
        'Dawn.\n\n"Owls, sleep."',
        "Owls.\n\nDawn.",
    ),
    "length_constraints:number_paragraphs": ({"num_paragraphs": 2}, "Dawn\n***\nDusk\n***", "Dawn\n***\n***\nDusk"),
    "length_constraints:number_sentences": (
        {"num_sentences": 2, "relation": "at least"},
        "Dr. Li came at 5.30. She left!",
        "Dr. Li came at 5.30",
    ),
    "length_constraints:number_words": ({"num_words": 3, "relation": "less than"}, "two words", "three small words"),
    "letters:letter_counting": ({"N": 4, "relation": "at least"}, "an owl", "owl 4"),
    "letters:letter_counting2": ({"letter": "o", "let_frequency": 2, "let_relation": "less than"}, "owl", "oslo"),
    "new:copy_span_idx": (PROMPT | {"n_start": 5, "n_end": 8}, "two", "Name"),
    "paragraphs:paragraphs": ({}, "Dawn\n***\nDusk", "Dawn\n\nDusk"),
    "paragraphs:paragraphs2": ({}, "Dawn\n\nDusk", "Dawn\n\n\n\nDusk"),
    "punctuation:no_comma": ({}, "owl and wren", "owl, wren"),
    "punctuation:punctuation_dot": ({}, "owl!", "owl."),
    "punctuation:punctuation_exclamation": ({}, "owl.", "owl!"),
    "startend:end_checker": ({"end_phrase": "The end."}, '"... and so on. THE END."', "The end. Really."),
    "startend:quotation": ({}, ' "owl" ', '"'),
}
LANGUAGE_IDS = {"language:response_language", "change_case:english_capital", "change_case:english_lowercase"}

#: Marks that the instructions look for, so that random texts contain them.
MARKS = ["*", "***", "******", "<<", ">>", "[", "]", "-", "--", "```", '"', "'", "n't", ".", "...", "?", "!", ",", "\n"]
MARKS += [
    "\n\n",
    " ",
    "P.S.",
    "Mr.",
    "U.S.",
    "1",
    "a",
    "I",
    "Small ",
    " early",
    "{",
    "é",
    "ب",
    "\u2028",
    "\ud800",
    "\x00",
]
hostile = st.one_of(st.text(), st.lists(st.sampled_from(MARKS), max_size=30).map("".join))


def test_all_54_instructions_have_a_case() -> None:
    assert len(INSTRUCTIONS) == 54
    assert CASES.keys() == INSTRUCTIONS.keys()


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("compat", [False, True])
def test_a_checker_accepts_a_text_that_follows_and_rejects_a_text_that_does_not(name: str, compat: bool) -> None:
    arguments, good, bad = CASES[name]
    if compat and name == "count:counting_composition":
        arguments = arguments | {"n_words": 4}  # the reference counts the mark as a word
    if compat and name == "count:count_unique":
        good = "No word here occurs twice."
    assert follows(good, name, arguments, compat=compat) is True
    assert follows(bad, name, arguments, compat=compat) is False


@pytest.mark.parametrize("name", sorted(CASES.keys() - LANGUAGE_IDS))
@given(text=hostile, compat=st.booleans())
@settings(max_examples=25, deadline=None)
def test_no_text_makes_a_checker_raise(name: str, text: str, compat: bool) -> None:
    assert follows(text, name, CASES[name][0], compat=compat) in (True, False)


@given(text=hostile)
@settings(max_examples=15, deadline=None)
def test_no_text_makes_the_language_checkers_raise(text: str) -> None:
    for name in LANGUAGE_IDS:
        assert follows(text, name, CASES[name][0]) in (True, False)


@pytest.mark.parametrize(
    "piece",
    [
        "<<",
        "[",
        "*",
        "Small ",
        " ",
        "\n",
        "a.",
        "?",
        '"',
        "'",
        "n't",
        "a'",
        "Mr. ",
        "1.",
        "- ",
        "a\n\n",
        "P. ",
        "a,",
        "Part ",
    ],
)
@pytest.mark.usefixtures("processor_limit")
def test_long_hostile_texts_take_linear_time(piece: str) -> None:
    text = piece * (120_000 // len(piece))
    for name in CASES.keys() - LANGUAGE_IDS:
        follows(text, name, CASES[name][0])


def test_too_deeply_nested_json_and_too_long_numbers_are_not_json() -> None:
    assert not follows("[" * 100_000, "detectable_format:json_format")
    assert not follows("1" * 10_000, "detectable_format:json_format")


# Arguments


@pytest.mark.parametrize(
    ("name", "arguments", "problem"),
    [
        ("keywords:existance", {}, "unknown instruction. Did you mean keywords:existence?"),
        ("keywords:existence", {}, "keywords: Field required"),
        ("keywords:existence", {"keywords": []}, "keywords: List should have at least 1 item"),
        ("keywords:existence", {"keywords": "owl"}, "keywords: Input should be a valid list"),
        (
            "keywords:frequency",
            {"keyword": "owl", "frequency": 2, "relation": "more than"},
            "relation: Input should be",
        ),
        ("keywords:frequency", {"keyword": "owl", "frequency": "2", "relation": "at least"}, "frequency: Input should"),
        ("keywords:frequency", {"keyword": "owl", "frequency": -1, "relation": "at least"}, "frequency: Input should"),
        ("keywords:letter_frequency", {"letter": "ab"}, "letter: String should have at most 1 character"),
        ("punctuation:no_comma", {"keyword": "owl"}, "keyword: Extra inputs are not permitted"),
        ("punctuation:no_comma", {"compat": True}, "compat: Extra inputs are not permitted"),
        ("combination:repeat_prompt", {"prompt_to_repeat": " "}, "prompt_to_repeat: String should match"),
        ("language:response_language", {"language": "xx"}, "language: Input should be"),
    ],
)
def test_an_unknown_name_or_a_bad_argument_raises_an_instruction_error(
    name: str, arguments: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InstructionError, match=re.escape(problem)):
        follows("anything", name, arguments)


def test_a_null_argument_counts_as_missing() -> None:
    assert follows("owl", "punctuation:no_comma", {"keyword": None})
    assert follows("owl", "punctuation:no_comma", None)


def test_a_list_of_one_word_is_read_as_the_word() -> None:
    assert follows("owl", "keywords:word_once", {"keyword": ["owl"]})


def test_every_instruction_describes_its_arguments() -> None:
    schema = INSTRUCTIONS["length_constraints:number_words"].arguments.model_json_schema()
    assert schema["required"] == ["num_words", "relation"]
    assert schema["properties"]["relation"]["enum"] == ["less than", "at least"]


def test_an_instruction_can_ask_for_thirty_languages() -> None:
    assert len(get_args(Language)) == 30
    samples = {
        "ja": "古い灯台は港の上に立っています。",
        "he": "המגדלור הישן עומד מעל הנמל.",
        "sw": "Mnara wa zamani unasimama juu ya bandari.",
    }
    for language, text in samples.items():
        assert follows(text, "language:response_language", {"language": language})


def test_the_detected_language_of_a_text_is_always_the_same() -> None:
    assert len({detected("animal, normal, final") for _ in range(5)}) == 1


def test_a_missing_langdetect_is_an_error_with_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "langdetect", None)
    with pytest.raises(
        UserError, match=r"langdetect is not installed. Install it with: pip install .*\[instructions\]'"
    ):
        follows(GERMAN, "language:response_language", {"language": "de"})
