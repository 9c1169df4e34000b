"""Games are won, lost and marked as the rules say. The first word is crane."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import ludus
from ludus import Rollout, ScriptedModel
from ludus.response import texts_of

FOLDER = Path(__file__).parent


def play(*turns: Any) -> Rollout:
    """One rollout of the first row with these model turns."""
    return ludus.collect(FOLDER, model=ScriptedModel(list(turns)), limit=1).rollouts[0]


def guess(word: str) -> str:
    return f"<guess>{word}</guess>"


def test_the_word_at_once_earns_1_and_every_further_guess_costs_a_tenth():
    assert play(guess("crane")).reward == 1.0
    assert play(guess("slate"), guess("brace"), guess("CRANE")).reward == pytest.approx(0.8)


def test_six_wrong_guesses_lose():
    rollout = play(guess("slate"))
    assert rollout.verdict is not None
    assert rollout.reward == 0.0
    assert rollout.verdict.values["info"] == {"solved": False, "guesses": 6}


def test_an_answer_with_two_guesses_or_none_costs_a_guess_and_shows_no_marks():
    for text in (guess("crane") + guess("slate"), "crane"):
        rollout = play(text, guess("crane"))
        assert rollout.reward == pytest.approx(0.9)
        assert "exactly one" in str(rollout.response.output)


@pytest.mark.parametrize(
    ("word", "guessed", "marks"),
    [
        ("crane", "slate", "..=.="),
        ("level", "hello", ".=??."),
        ("allot", "llama", "?=?.."),
        ("mango", "tango", ".===="),
    ],
)
def test_a_letter_gets_as_many_marks_as_the_word_has_of_it(word: str, guessed: str, marks: str):
    row = {"responses_create_params": {"input": "Play."}, "word": word}
    model = ScriptedModel([guess(guessed), guess("zzzzz")])
    rollout = ludus.collect(FOLDER, model=model, input=[row]).rollouts[0]
    assert f"{guessed}\n{marks}" in texts_of(rollout.response.output[2])
