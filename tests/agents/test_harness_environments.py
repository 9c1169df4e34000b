"""Agent programs in our environments: they work in the task's own folder, and verify judges what they left there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from harness_runs import needs_harness

import ludus
from ludus import Environment, ScriptedModel
from ludus.environments.mini_swe_agent import build as repositories
from ludus.environments.mini_swe_agent import qualify as repairs
from ludus.environments.terminal import qualify as terminal_work
from ludus.rescore.rescoring import rescore
from ludus.rollout import Rollout
from ludus.testing import needs_sandbox


def worked(environment: str, harness: str, row: dict[str, Any], commands: list[str], output: Path) -> Rollout:
    """A rollout whose model runs some commands with the program's own tool."""
    asked: list[str] = []

    def answer(request: Any) -> Any:
        asked.append(json.dumps(list(request.input)))
        if len(asked) > len(commands):
            return "Done."
        return {"text": "So:", "calls": [{"name": "bash", "arguments": {"command": commands[len(asked) - 1]}}]}

    settings = {"agent.type": "harness", "agent.name": harness}
    run = ludus.collect(environment, model=ScriptedModel(answer), input=[row], settings=settings, output=output)
    assert "Every call runs in a new shell" not in asked[0], "advice on our own tool"
    (rollout,) = run.rollouts
    return rollout


@needs_sandbox()
@needs_harness("pi")
def test_pi_works_at_a_terminal_and_verify_says_that_it_cannot_play_it_again(tmp_path: Path) -> None:
    environment = Environment.load("terminal")
    row = json.loads(Path(str(environment.rows())).read_text().partition("\n")[0])
    solved = terminal_work.oracle(environment.task(row))[:-1]
    commands = [turn["arguments"]["command"] for turn in solved]
    rollout = worked("terminal", "pi", row, commands, tmp_path / "run")
    assert (rollout.reward, rollout.stop_reason) == (1.0, "completed")
    changes = rescore(tmp_path / "run")
    assert changes.counts["failed"] == 1
    assert "tool/no_replay" in str(changes.summary())


@pytest.mark.slow
@needs_sandbox()
@needs_harness("mini-swe-agent")
def test_mini_swe_agent_repairs_a_repository(tmp_path: Path) -> None:
    row = next(iter(repositories.rows()))
    solved = repairs.oracle(Environment.load("mini_swe_agent").task(row))[:-1]
    commands = [*(turn["arguments"]["command"] for turn in solved), "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"]
    rollout = worked("mini_swe_agent", "mini-swe-agent", row, commands, tmp_path / "run")
    assert rollout.error is None, rollout.error
    assert (rollout.reward, rollout.stop_reason) == (1.0, "completed")
