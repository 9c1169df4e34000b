"""The qualification card beside a run, and the entropy of tokens: shown where they are known, never guessed."""

from __future__ import annotations

import json
from math import log
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ludus.view.cards import cards_of
from ludus.view.entropy import call_entropies, lower_bound
from ludus.view.places import ViewedRun


def test_without_a_card_the_command_that_makes_one_is_shown(tmp_path: Path):
    (run := tmp_path / "my run").mkdir()
    (run / "rollouts.jsonl").write_bytes(b"")
    (found,) = cards_of(ViewedRun(run), ["mcqa; rm -rf ~"])
    assert found["card"] is None
    assert found["command"] == f"ludus qualify 'mcqa; rm -rf ~' --json > '{run}/card.json'"


def test_a_card_belongs_to_the_environment_that_it_names(tmp_path: Path):
    (tmp_path / "rollouts.jsonl").write_bytes(b"")
    (tmp_path / "card.json").write_text(json.dumps({"environment": "b", "verdict": "trusted"}))
    cards = cards_of(ViewedRun(tmp_path), ["a", "b"])
    assert [each["card"] and each["card"]["verdict"] for each in cards] == [None, "trusted"]


def test_a_built_in_environment_brings_its_card_and_a_path_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (folder := tmp_path / "environments" / "game").mkdir(parents=True)
    (folder / "card.json").write_text('{"verdict": "trusted"}')
    (run := tmp_path / "run").mkdir()
    (run / "rollouts.jsonl").write_bytes(b"")
    monkeypatch.setattr("ludus.view.cards.BUILT_IN", tmp_path / "environments")
    cards = cards_of(ViewedRun(run), ["game", "../environments/game"])
    assert [each["card"] for each in cards] == [{"verdict": "trusted"}, None]


def test_entropy_comes_from_the_alternatives_of_a_token():
    even = {"token": "a", "logprob": log(0.5), "top_logprobs": [{"token": t, "logprob": log(0.5)} for t in "ab"]}
    assert lower_bound(even) == pytest.approx(log(2))
    alone = {"token": "a", "logprob": log(0.5), "top_logprobs": [{"token": "a", "logprob": log(0.5)}]}
    assert lower_bound(alone) == pytest.approx(log(2))  # everything else counts as one more alternative
    assert lower_bound({"token": "a", "logprob": -1.0}) is None


def test_entropy_belongs_to_the_call_that_wrote_the_text():
    token = {"token": "a", "logprob": 0.0, "top_logprobs": [{"token": "a", "logprob": 0.0}]}
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "logprobs": [token, token]}]}
    call = {"type": "function_call", "name": "f", "arguments": "{}"}
    output = [call, {"type": "function_call_output", "output": "x"}, said]
    row = {"response": {"output": output}, "model_calls": [{"items": 1}, {"items": 1}]}
    assert call_entropies(row) == [[], [0.0, 0.0]]


any_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["token", "logprob", "top_logprobs", "x"]), inner),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["token", "logprob", "top_logprobs"]), any_json))
def test_alternatives_of_another_program_do_no_harm(entry: dict[str, object]):
    found = lower_bound(entry)
    assert found is None or found >= -1e-9
