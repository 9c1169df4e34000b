"""A program's custom tools and MCP tools reach a policy that knows only functions, and its calls come back."""

from __future__ import annotations

import json
from dataclasses import replace
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import pytest
from harness_runs import needs_harness, played
from proxied import proxied

import ludus
from ludus import Environment, ScriptedModel
from ludus.agents.harness.agent import HarnessAgent
from ludus.agents.program_calls import ProgramCalls
from ludus.dialects.chat import to_chat
from ludus.model import Model, Request
from ludus.response import Response, function_call, message
from ludus.testing import needs_sandbox
from ludus.tokens import Tokens, sequences

TOOLS = [
    {"type": "custom", "name": "apply_patch", "description": "Edit files."},
    {"type": "namespace", "name": "mcp__task", "tools": [{"type": "function", "name": "add", "parameters": {}}]},
]
#: The arguments as a model may write them: with spaces, and once not as asked.
CALLS = [
    function_call("apply_patch", '{ "input":  "*** Begin Patch\\n+a\\u0062" }', call_id="a"),
    function_call("apply_patch", "*** not JSON", call_id="b"),
    function_call("mcp__task__add", '{ "count":  3 }', call_id="c"),
]


class FunctionsOnly(Model):
    """Plays `CALLS`. Its token ids are the characters of the chat request that it gets."""

    name = "functions-only"

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []

    async def respond(self, request: Request) -> Response:
        lost: list[str] = []
        body = to_chat(request.input, request.params, lost=lost)
        self.asked.append({**body, "lost": lost})
        turn = len(self.asked) - 1
        answer = CALLS[turn] if turn < len(CALLS) else message("Done.")
        ids = [ord(character) for item in request.input for character in json.dumps(item)]
        own = [*map(ord, json.dumps(answer))]
        return Response.of(answer, tokens=Tokens(ids, own, [-0.1] * len(own)))


def ask(program: ProgramCalls, **body: Any) -> Any:
    url = urlsplit(program.url)
    connection = HTTPConnection(str(url.hostname), url.port)
    connection.request("POST", "/v1/responses", json.dumps(body), {"authorization": f"Bearer {program.key}"})
    reply = connection.getresponse().read()
    connection.close()
    return reply if body.get("stream") else json.loads(reply)


@pytest.mark.parametrize("stored", [False, True])
def test_a_policy_that_knows_only_functions_plays_custom_and_namespaced_tools(stored: bool) -> None:
    policy = FunctionsOnly()
    with proxied(policy) as program:
        items: list[Any] = [{"type": "message", "role": "user", "content": "hi"}]
        previous: dict[str, Any] = {}
        called = []
        for _ in range(4):
            answer = ask(program, input=items, tools=TOOLS, **previous)
            (item,) = answer["output"]
            kind = {"custom_tool_call": "custom_tool_call_output", "function_call": "function_call_output"}
            called.append((item["type"], item.get("namespace"), item.get("name"), item.get("input")))
            assert answer["tools"] == TOOLS
            more = {"type": kind.get(item["type"]), "call_id": item.get("call_id"), "output": "ok"}
            if stored:
                items, previous = [more], {"previous_response_id": answer["id"]}
            else:
                items = [*items, {key: value for key, value in item.items() if key != "id"}, more]
        program.settle()
        calls, output = program._episode.calls, program._episode.response.output
    assert called == [
        ("custom_tool_call", None, "apply_patch", "*** Begin Patch\n+ab"),
        ("custom_tool_call", None, "apply_patch", "*** not JSON"),
        ("function_call", "mcp__task", "add", None),
        ("message", None, None, None),
    ]
    assert [tool["function"]["name"] for tool in policy.asked[0]["tools"]] == ["apply_patch", "mcp__task__add"]
    assert [body["lost"] for body in policy.asked] == [[]] * 4
    assert [item for item in output if item["type"] == "function_call"] == CALLS, "the model's own turns"
    assert len(list(sequences(calls))) == 1


def test_a_streamed_custom_call_has_its_own_events() -> None:
    with proxied(FunctionsOnly()) as program:
        reply = ask(program, input="hi", tools=TOOLS, stream=True).decode()
    events = [json.loads(line[6:]) for line in reply.splitlines() if line.startswith("data: {")]
    done = next(event for event in events if event["type"] == "response.custom_tool_call_input.done")
    assert done["input"] == "*** Begin Patch\n+ab"
    item = next(event["item"] for event in events if event["type"] == "response.output_item.done")
    assert item["type"] == "custom_tool_call"


@needs_sandbox()
@needs_harness("codex")
def test_a_task_s_tool_reaches_the_policy_inside_codex() -> None:
    environment = Environment.load("example_session_state_mgmt")
    environment = replace(environment, agent=HarnessAgent(HarnessAgent.Config(name="codex")))
    row = {"responses_create_params": {"input": "add 3"}, "initial_count": 1, "expected_count": 4}

    def answer(request: Any) -> Any:
        if any(item.get("type") == "function_call_output" for item in request.input):
            return "Done."
        return {"text": "I add.", "calls": [{"name": "mcp__task__increment_counter", "arguments": {"count": 3}}]}

    (rollout,) = ludus.collect(environment, model=ScriptedModel(answer), input=[row]).rollouts
    assert rollout.error is None
    assert (rollout.reward, rollout.stop_reason) == (1.0, "completed")
    assert rollout.response is not None
    assert [call["name"] for call in rollout.response.function_calls] == ["mcp__task__increment_counter"]


class Patching(Model):
    """Adds two files with the custom tool of Codex, then ends. Its token ids are characters."""

    name = "patching"

    async def respond(self, request: Request) -> Response:
        done = sum(item.get("type") == "function_call_output" for item in request.input)
        name = "hello.txt" if not done else "other.txt"
        patch = {"input": f"*** Begin Patch\n*** Add File: {name}\n+hi\n*** End Patch"}
        call = function_call("apply_patch", json.dumps(patch, indent=2), call_id=f"c{done}")
        answer = call if done < 2 else message("Done.")
        ids = [ord(character) for item in request.input for character in json.dumps(item, sort_keys=True)]
        own = [*map(ord, json.dumps(answer, sort_keys=True))]
        return Response.of(answer, tokens=Tokens(ids, own, [-0.1] * len(own)))


@needs_sandbox()
@needs_harness("codex")
def test_codex_applies_the_patches_of_a_policy_and_its_rollout_is_one_sequence() -> None:
    rollout = played("codex", Patching(), arguments=["-c", 'model="gpt-5.5"'])  # a model that Codex gives apply_patch
    assert (rollout.reward, rollout.stop_reason, rollout.error) == (1.0, "completed", None)
    assert rollout.response is not None
    assert [call["arguments"][:3] for call in rollout.response.function_calls] == ["{\n "] * 2, "as the policy wrote it"
    assert [sequence.kind for sequence in rollout.sequences()] == ["main"]
