"""Known errors of the reference: for each, Ludus gives the right verdict and `compat` gives the reference's."""

from __future__ import annotations

from typing import Any

from ludus.environments.instruction_following.instructions import follows
from ludus.environments.instruction_following.instructions.matching import may_run_away

TEA = "We drink tea. You like milk.\n***\nThey eat bread. I want soup.\n***\nShe has rice. He cooks fish."


def differs(name: str, text: str, **arguments: Any) -> bool:
    """The verdict on a text. Asserts that `compat` gives the opposite verdict."""
    verdict = follows(text, name, arguments)
    assert follows(text, name, arguments, compat=True) is not verdict
    return verdict


def test_a_keyword_is_a_word_and_not_a_pattern() -> None:
    assert not differs("keywords:existence", "owl", keywords=["o.l"])
    assert differs("keywords:existence", "really?)", keywords=["?)"])
    assert not differs("keywords:word_once", "ccc", keyword="c+")
    assert differs("keywords:frequency", "owl", keyword="o.l", frequency=1, relation="less than")
    assert not differs("count:count_increment_word", "owl wren wren", keyword1="o.l", keyword2="wren")
    assert differs("keywords:forbidden_words", "I use c daily", forbidden_words=["c++"])
    assert not follows("I use c++ daily", "keywords:forbidden_words", {"forbidden_words": ["c++"]})
    assert not differs("detectable_format:multiple_sections", "aa 1", section_spliter="a+", num_sections=1)
    assert not differs("detectable_content:postscript", "NOTE!", postscript_marker="n.te")


def test_a_pattern_that_may_match_for_too_long_is_recognised_before_it_runs() -> None:
    assert may_run_away({"keywords": ["owl", "(a+)+$"]})
    assert not may_run_away({"keyword": "P.S.", "frequency": 2, "keywords": ["sea-owl"], "other": None})


def test_a_text_without_a_detectable_language_matches_no_language() -> None:
    assert not differs("language:response_language", "12345", language="de")
    assert not differs("language:response_language", "", language="en")


def test_an_excluded_word_is_found_at_the_ends_and_beside_marks() -> None:
    for text in ("owl at the start", "at the end owl", "an owl, here", "(owl)", "\nowl\n"):
        assert not differs("keywords:exclude_word_harder", text, keyword="owl")


def test_a_horizontal_rule_is_not_a_bullet() -> None:
    for rule in ("---", "- - -", "* * *"):
        assert differs("detectable_format:number_bullet_lists", f"* owl\n{rule}\n* wren", num_bullets=2)


def test_a_postscript_comes_last() -> None:
    marker = {"postscript_marker": "P.S."}
    assert not differs("detectable_content:postscript", "P.S. first\nand then the letter\nwith its end", **marker)
    assert not differs("detectable_content:postscript", "Hello.\nP.S. here.\n\nAnd then the letter.", **marker)
    for text in ("P.S. only", "Bye. P.S. inline", "Bye.\nP.S. two\nlines", "P.S. one\n\nP.S. two"):
        assert follows(text, "detectable_content:postscript", marker), text


def test_every_repetition_of_a_phrase_has_another_word() -> None:
    text = "Small boats leave the harbour early and Small ships leave the harbour early"
    assert not differs("copy:repeat_phrase", text, phrase="Small boats leave the harbour early", small_n=2)


def test_a_span_may_include_its_last_character() -> None:
    span = {"prompt_to_repeat": "Name two birds.", "n_start": 5, "n_end": 9}
    assert differs("new:copy_span_idx", "two b", **span)
    assert follows("two", "new:copy_span_idx", span)
    assert not follows("two bi", "new:copy_span_idx", span)


def test_two_wrapped_words_are_not_a_wrapped_pair() -> None:
    assert not differs("detectable_format:bigram_wrapping", "<<we>> <<are>>")


def test_marks_and_parts_of_words_are_not_repeated_words() -> None:
    assert differs("count:count_unique", "don't won't")
    assert differs("count:count_unique", "One, two, three.")


def test_marks_are_not_words_of_a_composition() -> None:
    assert differs("count:counting_composition", TEA, n_sent=2, n_words=3)
    assert not differs("count:counting_composition", TEA, n_sent=2, n_words=4)


def test_marks_have_no_position_among_words() -> None:
    assert differs("keywords:keyword_specific_position", "Look. Old, brown owl.", keyword="owl", n=2, m=3)
    assert not differs("keywords:keyword_specific_position", "Look. Old, owl.", keyword="owl", n=2, m=3)


def test_a_single_letter_is_not_a_palindrome() -> None:
    for text in ("I ran", "so -- what", "| x"):
        assert not differs("keywords:palindrome", text)


def test_a_mark_at_both_ends_is_not_a_word() -> None:
    assert not differs("keywords:start_end", "- owl -")


def test_several_of_the_offered_answers_at_once_fail() -> None:
    assert not differs("detectable_format:constrained_response", "My answer is yes. My answer is no.")
