"""The tool loop: which calls it runs, which it refuses, and why it stops."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

import ludus
from ludus import Resources, ScriptedModel, tool
from ludus.response import function_call, function_call_output, message


class Toolbox(Resources):
    """Tools of every kind, and a log of the methods that ran."""

    log: list[str] = []
    closed = 0

    @tool
    async def add(self, a: int, b: int = 1) -> int:
        """Add two numbers.

        Args:
            a: the first number
        """
        self.log.append(f"add {a} {b}")
        return a + b

    @tool
    async def slow(self, seconds: float) -> str:
        """Wait."""
        self.log.append("slow begins")
        await asyncio.sleep(seconds)
        self.log.append("slow ends")
        return "slept"

    @tool(name="open")
    async def open_file(self, path: str) -> str:
        """A tool with the name of a method of Resources."""
        return f"opened {path}"

    @tool
    def broken(self) -> None:
        """Raise."""
        raise RuntimeError("the {tool} broke")

    async def _private(self) -> str:
        self.log.append("private")
        return "secret"

    async def verify(self, task: Any, response: Any) -> float:
        self.log.append("verify")
        return 1.0

    async def close(self) -> None:
        self.log.append("close")


def run(script: list[Any], max_steps: int = 8, **params: Any) -> tuple[Any, list[str], list[str]]:
    fresh = type("Fresh", (Toolbox,), {"log": []})
    row = {"responses_create_params": {"input": "go", **params}}
    result = ludus.collect(fresh, model=ScriptedModel(script), input=[row], settings={"agent.max_steps": max_steps})
    rollout = result.rollouts[0]
    assert rollout.error is None, rollout.error
    outputs = [item["output"] for item in rollout.response.output if item.get("type") == "function_call_output"]
    return rollout, outputs, fresh.log


def call(name: str, **arguments: Any) -> dict[str, Any]:
    return {"call": name, "arguments": arguments}


@pytest.mark.parametrize(
    "name", ["verify", "close", "_private", "__init__", "__class__", "call", "tools", "nonsense", ""]
)
def test_only_an_offered_tool_can_be_called(name):
    _, outputs, log = run([call(name), "done"])
    assert outputs == ['{"detail":"Not Found"}']
    assert log == ["verify", "close"]


def test_a_tool_that_the_row_does_not_list_is_not_run():
    _, outputs, log = run([call("add", a=1), "done"], tools=[{"type": "function", "name": "slow", "parameters": {}}])
    assert outputs == ['{"detail":"Not Found"}']
    assert "add 1 1" not in log


def test_a_row_with_an_empty_tools_list_offers_no_tool_and_a_row_without_tools_offers_all():
    assert run([call("add", a=1), "done"], tools=[])[1] == ['{"detail":"Not Found"}']
    assert run([call("add", a=1), "done"])[1] == ["2"]


def test_a_tool_can_have_the_name_of_a_method_of_resources():
    assert run([call("open", path="x"), "done"])[1] == ["opened x"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("{", "Invalid tool call arguments"),
        ("", "Field required"),
        ("[1]", "should be an object"),
        ('{"a": "x"}', "valid integer, unable to parse"),
        ('{"a": "3"}', "valid integer"),
        ('{"a": true}', "valid integer"),
        ('{"a": null}', "valid integer"),
        ('{"a": 1.5}', "fractional part"),
        ('{"b": 3}', "Field required"),
    ],
)
def test_wrong_arguments_return_an_error_and_the_tool_does_not_run(arguments, says):
    _, outputs, log = run([{"call": "add", "arguments": arguments}, "done"])
    assert says in outputs[0]
    assert isinstance(orjson.loads(outputs[0]), dict)
    assert log == ["verify", "close"]


def test_a_float_without_a_fraction_is_accepted_as_an_integer():
    assert run([call("add", a=2.0, b=3.0), "done"])[1] == ["5"]


def test_extra_arguments_are_ignored_and_defaults_apply():
    assert run([call("add", a=1, zzz=5), "done"])[1] == ["2"]


def test_the_output_of_a_raising_tool_is_the_error_and_the_loop_continues():
    rollout, outputs, _ = run([call("broken"), call("add", a=1, b=2), "done"])
    assert outputs == ['{"error":"RuntimeError: the {tool} broke"}', "3"]
    assert rollout.stop_reason == "completed"


def test_calls_of_one_turn_run_concurrently_and_their_outputs_keep_the_order():
    turn = {"calls": [{"name": "slow", "arguments": {"seconds": 0.05}}, {"name": "add", "arguments": {"a": 1}}]}
    _, outputs, log = run([turn, "done"])
    assert outputs == ["slept", "2"]
    assert log[:3] == ["slow begins", "add 1 1", "slow ends"]


def test_calls_run_one_after_another_if_parallel_tool_calls_is_false():
    turn = {"calls": [{"name": "slow", "arguments": {"seconds": 0.01}}, {"name": "add", "arguments": {"a": 1}}]}
    _, outputs, log = run([turn, "done"], parallel_tool_calls=False)
    assert outputs == ["slept", "2"]
    assert log[:3] == ["slow begins", "slow ends", "add 1 1"]


def test_max_steps_stops_a_model_that_never_stops_calling_tools():
    rollout, outputs, _ = run([call("add", a=1)], max_steps=5)
    assert (rollout.stop_reason, len(outputs), len(rollout.calls)) == ("max_steps", 5, 5)


def test_a_model_that_gives_only_reasoning_is_asked_once_more():
    rollout, _, _ = run([{"reasoning": "hmm"}])
    assert (rollout.stop_reason, len(rollout.calls)) == ("no_answer", 2)
    rollout, _, _ = run([{"reasoning": "hmm"}, "so it is 4"])
    assert (rollout.stop_reason, rollout.response.output_text) == ("completed", "so it is 4")


def test_an_incomplete_answer_ends_the_rollout_and_its_calls_are_not_run():
    rollout, outputs, _ = run([{**call("add", a=1), "incomplete": "max_output_tokens"}])
    assert (rollout.stop_reason, outputs) == ("max_output_tokens", [])


def test_the_schema_comes_from_the_signature_and_the_docstring():
    schema = Toolbox.toolbox["add"].schema()
    assert schema["name"] == "add"
    assert schema["description"] == "Add two numbers."
    assert schema["parameters"] == {
        "type": "object",
        "properties": {
            "a": {"type": "integer", "description": "the first number"},
            "b": {"type": "integer", "default": 1},
        },
        "required": ["a"],
        "additionalProperties": False,
    }
    assert schema["strict"] is False


def test_a_tool_that_overrides_a_method_of_resources_is_a_type_error():
    with pytest.raises(TypeError, match="hides a method of Resources"):

        class Bad(Resources):
            @tool
            async def close(self) -> None:
                """Close."""


def test_a_call_that_comes_with_its_output_is_not_run():
    """A service in the place of a model may run tools of its own. It sends each call together with its output."""
    own = [function_call("add", {"a": 5}, call_id="own"), function_call_output("own", "its own 6")]
    asked = function_call("add", {"a": 1}, call_id="asked")
    rollout, outputs, log = run([{"items": [*own, asked]}, "done"])
    assert outputs == ["its own 6", "2"]
    assert log == ["add 1 1", "verify", "close"]
    assert rollout.stop_reason == "completed"
    rollout, outputs, log = run([{"items": [*own, message("done")]}])
    assert (outputs, log) == (["its own 6"], ["verify", "close"])
    assert len(rollout.calls) == 1
