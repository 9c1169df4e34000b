"""Several programs play the repeats of a task in turn, in each environment of repositories and shells."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from harness_runs import needs_harness

import ludus
from ludus import Environment, ScriptedModel
from ludus.agents.harness.declaration import read_declaration
from ludus.agents.harness.policy import outputs_in, tool_names
from ludus.environments.mini_swe_agent import build as repositories
from ludus.environments.mini_swe_agent import qualify as repairs
from ludus.environments.swerl_gen import qualify as answers
from ludus.environments.terminal import qualify as terminal_work
from ludus.testing import needs_sandbox

NAMES = ["claude-code", "codex", "pi"]
SOLVED = {"terminal": terminal_work.oracle, "mini_swe_agent": repairs.oracle, "swerl_gen": answers.oracle}

pytestmark = [
    needs_sandbox(),
    pytest.mark.skipif(not os.environ.get("LUDUS_TEST_HARNESS"), reason="needs minutes: make test-harness"),
    *map(needs_harness, NAMES),
]


def first_row(environment: Environment) -> dict[str, Any]:
    if environment.name == "mini_swe_agent":
        return next(iter(repositories.rows()))
    row: dict[str, Any] = json.loads(Path(str(environment.rows())).read_text().partition("\n")[0])
    return row


@pytest.mark.parametrize("name", SOLVED)
def test_three_programs_solve_a_task_of_an_environment_in_turn(name: str, tmp_path: Path) -> None:
    environment = Environment.load(name)
    row = first_row(environment)
    solution: Any = SOLVED[name](environment.task(row))
    turns = [solution] if isinstance(solution, str) else list(solution)
    commands = [turn["arguments"]["command"] for turn in turns[:-1]]
    shells = [shell for harness in NAMES if (shell := read_declaration(harness).shell) is not None]

    def answer(request: Any) -> Any:
        done, offered = outputs_in(request), tool_names(request)
        if done == len(commands):
            return turns[-1]
        (shell,) = (shell for shell in shells if shell.tool in offered)
        arguments = {shell.argument: commands[done], **shell.other}
        return {"text": "So:", "calls": [{"name": shell.tool, "arguments": arguments}]}

    settings: dict[str, Any] = {"agent.type": "harness", "agent.name": NAMES}
    model, output = ScriptedModel(answer), tmp_path / "run"
    rollouts = ludus.collect(name, model=model, input=[row], repeats=3, settings=settings, output=output).rollouts
    assert [rollout.error for rollout in rollouts] == [None] * 3
    assert [rollout.reward for rollout in rollouts] == [1.0] * 3
    played = {rollout.response.data["metadata"]["harness"] for rollout in rollouts if rollout.response is not None}
    assert played == {read_declaration(harness).label for harness in NAMES}
