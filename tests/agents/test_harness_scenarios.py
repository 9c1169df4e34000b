"""Every harness that is installed plays the same scenarios, with the real program: make test-harness."""

from __future__ import annotations

import os

import pytest
from harness_runs import (
    FIVE,
    HARNESSES,
    NO_SUB_AGENTS,
    SUB_AGENTS,
    WRITE,
    Delegating,
    Failing,
    Spaced,
    played,
    processes_of,
)
from waiting import until

from ludus.agents.harness.declaration import read_declaration
from ludus.model import Model
from ludus.outcome import Outcome
from ludus.rollout import Rollout
from ludus.testing import needs_sandbox

pytestmark = [
    needs_sandbox(),
    pytest.mark.skipif(not os.environ.get("LUDUS_TEST_HARNESS"), reason="needs minutes: make test-harness"),
    pytest.mark.parametrize("name", HARNESSES),
]


def finished(name: str, model: Model, lines: int = 1) -> Rollout:
    """A rollout that must reach its end, with the right file and nothing else left."""
    rollout = played(name, model)
    assert rollout.error is None
    assert (rollout.stop_reason, rollout.reward) == ("completed", 1.0)
    assert rollout.verdict is not None
    values = rollout.verdict.values
    assert (values["lines"], values["files"]) == (lines, [".:", "hello.txt", "/tmp:"])
    assert not {"node", "bwrap", read_declaration(name).command[0]} & set(values["processes"])
    until(lambda: not list(processes_of(name)))
    return rollout


def test_five_commands_are_one_sequence_however_the_model_writes_its_arguments(name: str) -> None:
    rollout = finished(name, Spaced(read_declaration(name), FIVE), lines=5)
    assert len(rollout.calls) == 6
    assert [sequence.kind for sequence in rollout.sequences()] == ["main"]
    assert all(thread.kind == "side" for thread in rollout.threads)


def test_a_model_that_fails_twice_is_asked_again_and_one_without_reasoning_is_one_sequence_too(name: str) -> None:
    rollout = finished(name, Failing(read_declaration(name), FIVE, thinks=False, first=1, last=2), lines=5)
    assert len(rollout.calls) == 6
    assert [sequence.kind for sequence in rollout.sequences()] == ["main"]


def test_a_model_that_fails_for_good_fails_the_rollout_without_a_reward(name: str) -> None:
    model = Failing(read_declaration(name), [WRITE], first=2, last=float("inf"))
    rollout = played(name, model)
    assert (rollout.outcome, rollout.reward) == (Outcome.FAILED, None)
    assert rollout.error is not None
    assert (rollout.error.stage, rollout.error.kind) == ("model", "http_500")
    until(lambda: not list(processes_of(name)))


def test_two_sub_agents_are_two_threads(name: str) -> None:
    program = read_declaration(name).name
    if program not in SUB_AGENTS:
        pytest.skip(f"{program} {NO_SUB_AGENTS[program]}")
    rollout = finished(name, Delegating(read_declaration(name), [WRITE]), lines=2)
    assert [(thread.kind, thread.parent) for thread in rollout.threads] == [("agent", "main")] * 2
    assert [sequence.kind for sequence in rollout.sequences()] == ["main", "agent", "agent"]
