"""The package mini-swe-agent as an agent: its loop, with our model and the task's own tool."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from typing import Any

import pytest

import ludus
from ludus import Environment, Resources, Response, ScriptedModel, tool
from ludus.agents.mini_swe import MiniSweAgent
from ludus.agents.mini_swe_program import task_of
from ludus.environments.mini_swe_agent import build, qualify
from ludus.errors import MissingExtra
from ludus.testing import needs_sandbox

installed = importlib.util.find_spec("minisweagent") is not None
WHY = "mini-swe-agent is not installed: pip install 'ludus-gym[swe]'"
needs_package = pytest.mark.skipif(not installed, reason=WHY)


class Shell(Resources):
    """A shell that knows two commands."""

    async def open(self, task: Any) -> None:
        self.commands: list[str] = []

    @tool
    async def bash(self, command: str) -> dict[str, str]:
        """Run a command."""
        self.commands.append(command)
        return {"output": f"{command.removeprefix('echo ')}\n", "ended": "exit code 0"}

    async def verify(self, task: Any, response: Response) -> float:
        return float(self.commands == task.expected)


def environment(**settings: Any) -> Environment:
    made = Environment.load(Shell)
    return replace(made, agent=MiniSweAgent(MiniSweAgent.Config(**settings)))


def row(*expected: str) -> dict[str, Any]:
    prompt = "Look.\n<problem>\nThe sum is wrong.\n</problem>\nGood luck."
    return {"responses_create_params": {"input": prompt, "temperature": 0.5}, "expected": expected}


SUBMIT = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"


@needs_package
@pytest.mark.slow
def test_the_package_s_loop_runs_with_our_model_and_tool():
    seen: list[Any] = []

    def answer(request: Any) -> Any:
        seen.append((list(request.input), dict(request.params)))
        turns = ["I think first.", {"call": "bash", "arguments": {"command": "echo hello"}}, None]
        return turns[request.turn] or {"call": "bash", "arguments": {"command": SUBMIT}}

    rollout = ludus.collect(environment(), model=ScriptedModel(answer), input=[row("echo hello", SUBMIT)]).rollouts[0]
    record = json.loads(rollout.encode())
    assert (rollout.reward, record["stop_reason"]) == (1.0, "completed")
    first, second, third = (json.dumps(items) for items, _ in seen)
    assert "Please solve this issue: The sum is wrong." in first
    assert "Good luck" not in first
    assert "No tool calls found in the response" in second
    assert "hello" in third
    assert seen[0][1]["temperature"] == 0.5
    assert len(record["model_calls"]) == 3


@needs_package
@pytest.mark.slow
def test_the_agent_stops_after_its_steps():
    model = ScriptedModel([{"call": "bash", "arguments": {"command": "echo again"}}])
    rollout = ludus.collect(environment(max_steps=2), model=model, input=[row("echo again", "echo again")]).rollouts[0]
    assert (rollout.reward, json.loads(rollout.encode())["stop_reason"]) == (1.0, "max_steps")


@pytest.mark.skipif(installed, reason="mini-swe-agent is installed")
def test_without_the_package_the_error_says_what_to_install():
    with pytest.raises(MissingExtra, match=r"mini-swe-agent is not installed.*\[swe\]"):
        ludus.collect(environment(), model=ScriptedModel(["x"]), input=[row()])


@pytest.mark.parametrize(
    ("given", "task"),
    [
        ("Plain.", "Plain."),
        ([{"role": "user", "content": [{"type": "input_text", "text": "a\n<problem>\nb\n</problem>"}]}], "b"),
        ([{"role": "system", "content": "s"}, {"role": "user", "content": "u"}], "s\n\nu"),
    ],
)
def test_the_task_is_the_problem_in_the_prompt(given: Any, task: str):
    assert task_of({"input": given}) == task


@pytest.mark.skipif(installed, reason="mini-swe-agent is installed")
@needs_sandbox()
def test_chosen_by_a_setting_without_the_package_it_names_the_extra():
    asked = ScriptedModel(lambda request: pytest.fail("the model was asked"))
    with pytest.raises(MissingExtra, match=r"\[swe\]"):
        ludus.collect("mini_swe_agent", model=asked, limit=1, settings={"agent.type": "mini_swe"})


@needs_package
@needs_sandbox()
@pytest.mark.slow
def test_chosen_by_a_setting_it_repairs_a_repository():
    task = Environment.load("mini_swe_agent").task(next(iter(build.rows())))
    commands = [turn["arguments"]["command"] for turn in qualify.oracle(task)[:-1]] + [SUBMIT]
    model = ScriptedModel([{"call": "bash", "arguments": {"command": command}} for command in commands])
    (rollout,) = ludus.collect("mini_swe_agent", model=model, limit=1, settings={"agent.type": "mini_swe"}).rollouts
    assert rollout.error is None, rollout.error
    assert rollout.reward == 1.0
