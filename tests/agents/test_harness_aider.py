"""Aider edits files by text, without tools: make test-harness."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest
from harness_runs import ROWS, Hello, needs_harness

import ludus
from ludus import Environment, ScriptedModel
from ludus.agents.harness.agent import HarnessAgent
from ludus.errors import Failure
from ludus.outcome import Outcome
from ludus.rollout import Rollout
from ludus.testing import needs_sandbox

EDIT = "hello.txt\n```\nhi\n```\n"

pytestmark = [
    needs_sandbox(),
    pytest.mark.skipif(not os.environ.get("LUDUS_TEST_HARNESS"), reason="needs minutes: make test-harness"),
    needs_harness("aider"),
]


def played(answer: Any, *arguments: str) -> Rollout:
    agent = HarnessAgent(HarnessAgent.Config(name="aider", arguments=list(arguments)))
    environment = replace(Environment.load(Hello), agent=agent)
    (rollout,) = ludus.collect(environment, model=ScriptedModel(answer), input=ROWS).rollouts
    return rollout


def failing(first: int, last: float) -> Any:
    """A model whose calls fail, from one number to another."""
    asked: list[Any] = []

    def answer(request: Any) -> Any:
        asked.append(request)
        if first <= len(asked) <= last:
            raise Failure("http_500", "the server is out of order", stage="model")
        return EDIT

    return answer


@pytest.mark.parametrize("answer", [[EDIT], failing(1, 2)], ids=["well", "fails twice"])
def test_an_edit_is_made_and_nothing_else_is_left(answer: Any) -> None:
    rollout = played(answer)
    assert rollout.error is None
    assert (rollout.stop_reason, rollout.reward, len(rollout.calls)) == ("completed", 1.0, 1)
    assert rollout.verdict is not None
    assert rollout.verdict.values["files"] == [".:", "hello.txt", "/tmp:"]


def test_answers_that_aider_sends_back_are_one_thread() -> None:
    rollout = played(["Which file?\n\n```\nhi\n```\n"] * 2 + [EDIT])
    assert (rollout.stop_reason, rollout.reward, len(rollout.calls)) == ("completed", 1.0, 3)
    assert not rollout.threads


def test_the_commit_message_is_a_side_call() -> None:
    rollout = played([EDIT, "feat: say hi"], "--auto-commits")
    assert rollout.reward == 1.0
    assert [(thread.kind, len(thread.calls)) for thread in rollout.threads] == [("side", 1)]


def test_a_model_that_fails_for_good_fails_the_rollout() -> None:
    rollout = played(failing(1, float("inf")))
    assert (rollout.outcome, rollout.reward) == (Outcome.FAILED, None)
    assert rollout.error is not None
    assert (rollout.error.stage, rollout.error.kind) == ("model", "http_500")
