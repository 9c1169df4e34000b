"""The tools of an environment reach an agent program as an MCP server."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from harness_runs import needs_harness

import ludus
from ludus import Environment, ScriptedModel, UserError
from ludus.agents.harness.agent import HarnessAgent
from ludus.agents.harness.declaration import declared, read_declaration
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


#: The programs that know MCP. One of them is quick enough for every run of the tests.
IS_LONG_RUN = bool(os.environ.get("LUDUS_TEST_HARNESS"))
QUICK = "claude-code"
CLIENTS = [
    pytest.param(
        name,
        marks=[
            needs_harness(name),
            pytest.mark.skipif(name != QUICK and not IS_LONG_RUN, reason="needs minutes: make test-harness"),
        ],
    )
    for name in declared()
    if read_declaration(name).tools is not None
]


@needs_sandbox()
@pytest.mark.parametrize("harness", CLIENTS)
def test_a_call_of_a_program_reaches_the_session_and_its_output_the_model(harness: str) -> None:
    def answer(request: Any, added: Any) -> Any:
        if '"success"' in json.dumps(request.input[-1]).replace("\\", ""):
            return "Done."
        (tool,) = (tool for tool in request.params["tools"] if tool["name"].endswith("increment_counter"))
        more = {name: other[name] for name in tool["parameters"]["required"] if name in other}
        return {"text": "I add.", "calls": [{"name": tool["name"], "arguments": {**added, **more}}]}

    shell = read_declaration(harness).shell
    other = shell.other if shell is not None else {}  # what the program demands of every call
    rollout = counted(harness, answer)
    assert rollout.error is None
    assert (rollout.reward, rollout.stop_reason) == (1.0, "completed")
    assert rollout.response is not None
    (call,) = rollout.response.function_calls
    assert call["name"].endswith("increment_counter")


@needs_sandbox()
@needs_harness("pi")
def test_a_program_without_mcp_is_refused_before_the_model_is_asked() -> None:
    def answer(request: Any, added: Any) -> Any:
        pytest.fail("the model was asked")

    with pytest.raises(UserError, match="pi cannot use the tools of this environment"):
        counted("pi", answer)
