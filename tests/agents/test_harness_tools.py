"""The tools of an environment reach an agent program as an MCP server."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from harness_runs import needs_harness

import ludus
from ludus import Environment, ScriptedModel, UserError
from ludus.agents.harness.agent import HarnessAgent
from ludus.rollout import Rollout
from ludus.testing import needs_sandbox


def counted(harness: str, answer: Any) -> Rollout:
    environment = Environment.load("example_session_state_mgmt")
    environment = replace(environment, agent=HarnessAgent(HarnessAgent.Config(name=harness)))
    row = json.loads(Path(str(environment.rows())).read_text().partition("\n")[0])
    assert row["initial_count"] != row["expected_count"]
    added = {"count": row["expected_count"] - row["initial_count"]}

    def called(request: Any) -> Any:
        return answer(request, added)

    (rollout,) = ludus.collect(environment, model=ScriptedModel(called), input=[row]).rollouts
    return rollout


@needs_sandbox()
@needs_harness("claude-code")
def test_a_call_of_claude_code_reaches_the_session_and_its_output_the_model() -> None:
    def answer(request: Any, added: Any) -> Any:
        if '"success"' in json.dumps(request.input[-1]).replace("\\", ""):
            return "Done."
        (name,) = (tool["name"] for tool in request.params["tools"] if tool["name"].endswith("increment_counter"))
        return {"text": "I add.", "calls": [{"name": name, "arguments": added}]}

    rollout = counted("claude-code", answer)
    assert rollout.error is None
    assert (rollout.reward, rollout.stop_reason) == (1.0, "completed")
    assert rollout.response is not None
    (call,) = rollout.response.function_calls
    assert call["name"] == "mcp__task__increment_counter"


@needs_sandbox()
@needs_harness("pi")
def test_a_program_without_mcp_is_refused_before_the_model_is_asked() -> None:
    def answer(request: Any, added: Any) -> Any:
        pytest.fail("the model was asked")

    with pytest.raises(UserError, match="pi cannot use the tools of this environment"):
        counted("pi", answer)
