"""Answers need the right text, the right citations and the reading."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ludus
from ludus import Rollout, ScriptedModel

FOLDER = Path(__file__).parent


def play(*turns: Any) -> Rollout:
    """One rollout of the first row with these model turns."""
    return ludus.collect(FOLDER, model=ScriptedModel(list(turns)), limit=1).rollouts[0]


READ = {"call": "read", "arguments": {"name": "lighthouse"}}


def test_a_right_answer_with_its_source_earns_1():
    search = {"call": "search", "arguments": {"words": "lighthouse of velm"}}
    rollout = play(search, READ, "It was early.\nAnswer: 1891 [lighthouse]")
    assert "lighthouse" in rollout.response.output[1]["output"]
    assert rollout.reward == 1.0


def test_a_right_answer_without_support_earns_0_and_the_verdict_says_why():
    for turns in (["Answer: 1891 [lighthouse]"], [READ, "Answer: 1891"], [READ, "Answer: 1891 [lighthouse] [orla]"]):
        rollout = play(*turns)
        assert rollout.verdict is not None
        assert rollout.reward == 0.0
        assert rollout.verdict.values == {"right": True, "supported": False}


def test_a_supported_wrong_answer_earns_0():
    assert play(READ, "Answer: 1892 [lighthouse]").reward == 0.0
    assert play(READ, "Answer: 1891 or 1892 [lighthouse]").reward == 0.0


def test_the_model_reads_that_an_article_does_not_exist():
    rollout = play({"call": "read", "arguments": {"name": "../data/example"}}, "Answer: 1891 [lighthouse]")
    assert "there is no article" in rollout.response.output[1]["output"]
