"""The agent of the GRPO example that reads calls from text."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ludus
from ludus import Environment, Response
from ludus.models.scripted import ScriptedModel
from ludus.response import message

EXAMPLE = Path(__file__).parents[2] / "examples" / "train_grpo"


@pytest.fixture
def additions(monkeypatch: pytest.MonkeyPatch) -> Environment:
    monkeypatch.setattr(sys, "path", [str(EXAMPLE), *sys.path])
    from environments import Additions
    from text_calls import TextCalls

    return replace(Environment.load(Additions), agent=TextCalls())


def test_calls_written_as_text_reach_the_tools_and_other_text_is_answered(additions: Environment) -> None:
    asked: list[Any] = []
    answers = ["add number=4", "I add 5 now.", "add number=5", "DONE"]

    def respond(request: Any) -> Response:
        asked.append(request.input[-1]["content"])
        assert not request.params.get("tools")
        return Response.of(message(answers[len(asked) - 1]), model="m")

    row = {"responses_create_params": {"input": "Add 4 and then 5."}, "numbers": [4, 5]}
    (rollout,) = ludus.collect(additions, model=ScriptedModel(respond), input=[row]).rollouts
    assert (rollout.reward, rollout.stop_reason) == (1.0, "completed")
    assert "add(number)" in asked[0]
    assert asked[1] == "The counter is 4."
    assert asked[2].startswith("That is no call.")
    assert asked[3] == "The counter is 9."


def test_the_loop_of_text_calls_ends_at_its_step_limit(additions: Environment) -> None:
    model = ScriptedModel(lambda request: Response.of(message("hm"), model="m"))
    row = {"responses_create_params": {"input": "Add 4."}, "numbers": [4]}
    (rollout,) = ludus.collect(additions, model=model, input=[row], settings={"agent.max_steps": 3}).rollouts
    assert (rollout.reward, rollout.stop_reason, len(rollout.calls)) == (0.0, "max_steps", 3)
