"""Programs as agents: real processes with real SDKs, and the failures of programs that misbehave."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from waiting import until_async, until_gone

import ludus
from ludus import Environment
from ludus.agents.command import CommandAgent
from ludus.episode import Episode
from ludus.errors import Failure, UserError
from ludus.model import Model, Request
from ludus.models import open_model
from ludus.outcome import Outcome
from ludus.response import Response, function_call, message, reasoning
from ludus.rollout import Rollout
from ludus.tokens import Tokens

ROWS = [{"responses_create_params": {"input": "add 3"}, "initial_count": 1, "expected_count": 4}]

RESPONSES = """
import json, os, sys, urllib.request
from openai import OpenAI
asked = json.load(sys.stdin)
client, items = OpenAI(max_retries=0), asked["input"]
def tool(call):
    url = os.environ["LUDUS_TOOLS_URL"] + "/" + call.name
    key = {"Authorization": "Bearer " + os.environ["LUDUS_TOOLS_KEY"]}
    return urllib.request.urlopen(urllib.request.Request(url, call.arguments.encode(), key)).read().decode()
while True:
    answer = client.responses.create(model="any", input=items, tools=asked["tools"])
    items += [item.model_dump(exclude_none=True) for item in answer.output]
    calls = [item for item in answer.output if item.type == "function_call"]
    if not calls:
        break
    items += [{"type": "function_call_output", "call_id": call.call_id, "output": tool(call)} for call in calls]
"""

CHAT = """
import json, sys
from openai import OpenAI
asked = json.load(sys.stdin)
client = OpenAI(max_retries=0)
said = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": asked["input"][0]["content"]}]
stream = client.chat.completions.create(model="any", messages=said, stream=True)
text = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
said += [{"role": "assistant", "content": text}, {"role": "user", "content": "Are you sure?"}]
client.chat.completions.create(model="any", messages=said)
"""

CLAUDE = """
import json, sys
from anthropic import Anthropic
asked = json.load(sys.stdin)
said = [{"role": "user", "content": asked["input"][0]["content"]}]
Anthropic(max_retries=0).messages.create(model="any", max_tokens=50, messages=said)
"""


#: Speaks to the model without an SDK, for claims that are about none: importing one takes a second.
PLAIN = """
import json, os, sys, urllib.request
asked = json.load(sys.stdin)
items = asked["input"]
def post(url, key, data):
    request = urllib.request.Request(url, data.encode(), {"Authorization": "Bearer " + key})
    return urllib.request.urlopen(request).read().decode()
def model(key=os.environ["OPENAI_API_KEY"], **body):
    url = os.environ["OPENAI_BASE_URL"] + "/responses"
    return json.loads(post(url, key, json.dumps({"model": "any", **body})))["output"]
def tool(call):
    url = os.environ["LUDUS_TOOLS_URL"] + "/" + call["name"]
    return post(url, os.environ["LUDUS_TOOLS_KEY"], call["arguments"])
"""

#: Calls the task's tools until the model calls none.
TOOLS = """
while True:
    answer = model(input=items, tools=asked["tools"])
    items += answer
    calls = [item for item in answer if item["type"] == "function_call"]
    if not calls:
        break
    items += [{"type": "function_call_output", "call_id": call["call_id"], "output": tool(call)} for call in calls]
"""


class Counting(Model):
    """Calls the tool to add 3 if it has tools, else answers with the number of requests so far. Gives tokens."""

    name = "counting"

    def __init__(self) -> None:
        self.asked: list[Request] = []

    async def respond(self, request: Request) -> Response:
        self.asked.append(request)
        size = 10 * len(self.asked)
        tokens = Tokens(list(range(size)), [size], [-0.5])
        if request.params.get("tools") and not any("output" in item for item in request.input):
            return Response.of(function_call("increment_counter", {"count": 3}, call_id="c1"), tokens=tokens)
        return Response.of(message(f"answer {len(self.asked)}"), tokens=tokens)


def collected(source: str, tmp_path: Path, model: Model | None = None, **settings: Any) -> Rollout:
    program = tmp_path / "program.py"
    program.write_text(source)
    environment = Environment.load("example_session_state_mgmt")
    environment.agent = CommandAgent(CommandAgent.Config(command=[sys.executable, str(program)], **settings))
    (rollout,) = ludus.collect(environment, model=model or Counting(), input=ROWS).rollouts
    return rollout


def test_a_program_with_the_openai_sdk_can_call_the_tasks_tools_for_a_reward(tmp_path: Path):
    rollout = collected(RESPONSES, tmp_path)
    assert (rollout.reward, rollout.stop_reason) == (1.0, "completed")
    assert rollout.response is not None
    assert [item["type"] for item in rollout.response.output] == ["function_call", "function_call_output", "message"]
    assert [call["generated_ids"] for call in rollout.calls] == [[10], [20]]


def test_the_rollout_of_a_streaming_chat_program_holds_the_messages_that_it_added(tmp_path: Path):
    rollout = collected(CHAT, tmp_path)
    assert rollout.response is not None
    said = [(item["role"], item["content"]) for item in rollout.response.output if item["role"] != "assistant"]
    assert said == [("system", "Be brief."), ("user", "add 3"), ("user", "Are you sure?")]
    assert rollout.response.output_text == "answer 1answer 2"
    assert rollout.reward == 0.0


def test_the_rollout_of_a_program_with_the_anthropic_sdk_holds_the_answer(tmp_path: Path):
    rollout = collected(CLAUDE, tmp_path)
    assert rollout.response is not None
    assert rollout.response.output_text == "answer 1"


#: Sends its own version of the model's turns: arguments with spaces, no reasoning, no ids of items.
REWRITING = """
for number in range(3):
    for item in model(input=items, tools=asked["tools"]):
        if item["type"] == "function_call":
            arguments = json.dumps(json.loads(item["arguments"]), indent=1)
            call = {key: item[key] for key in ("type", "name", "call_id")} | {"arguments": arguments}
            items += [call, {"type": "function_call_output", "call_id": item["call_id"], "output": str(number)}]
"""


class Rendering(Model):
    """Calls a tool each time. Its prompt ids are the characters of what it is asked, so that every change shows."""

    name = "rendering"

    async def respond(self, request: Request) -> Response:
        call = function_call("increment_counter", '{"count":1}', call_id=f"c{request.turn}")
        turn = [reasoning(f"thought {request.turn}"), call]
        tokens = Tokens(self.ids(request.input), self.ids(turn), [-0.1] * len(self.ids(turn)))
        return Response.of(*turn, tokens=tokens)

    @staticmethod
    def ids(items: list[Any]) -> list[int]:
        """The ids of items: what the model reads of each."""
        keys = ("type", "role", "content", "summary", "name", "arguments", "output")
        return [ord(letter) for item in items for key in keys for letter in f"{item.get(key)};"]


@pytest.mark.parametrize(("restore", "sequences"), [("exact", 1), ("as_sent", 3)])
def test_turns_that_a_program_wrote_again_continue_the_tokens(tmp_path: Path, restore: str, sequences: int):
    rollout = collected(PLAIN + REWRITING, tmp_path, Rendering(), restore=restore)
    assert rollout.response is not None
    kinds = [item["type"] for item in rollout.response.output]
    assert len(list(rollout.sequences())) == sequences
    assert len(rollout.calls) == 3
    if restore == "exact":
        assert kinds == ["reasoning", "function_call", "function_call_output"] * 2 + ["reasoning", "function_call"]
        assert rollout.response.data["metadata"]["restored_items"] == "4"


@pytest.fixture
def retried(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The calls that were made again, as they arrive."""
    from ludus.agents.program_calls import ProgramCalls

    seen: list[Any] = []
    answer = ProgramCalls.answer

    async def noted(calls: ProgramCalls, incoming: Any, body: Any) -> Any:
        if (incoming.header(b"x-stainless-retry-count") or "0") != "0":
            seen.append(body)
        return await answer(calls, incoming, body)

    monkeypatch.setattr(ProgramCalls, "answer", noted)
    return seen


def test_a_retried_request_asks_the_model_once(tmp_path: Path, retried: list[Any]):
    source = CHAT.replace("max_retries=0", "max_retries=9, timeout=2.0")
    source = source.replace("stream=True", "").replace(
        'text = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)',
        "text = stream.choices[0].message.content",
    )

    class Slow(Counting):
        async def respond(self, request: Request) -> Response:
            await until_async(lambda: retried)
            return await super().respond(request)

    model = Slow()
    rollout = collected(source, tmp_path, model)
    assert len(model.asked) == 2
    assert rollout.response is not None
    assert rollout.response.output_text == "answer 1answer 2"


PARALLEL = """
import asyncio
from openai import AsyncOpenAI

async def main():
    async with AsyncOpenAI(max_retries=9, timeout=2.0) as client:
        async def ask(text):
            return await client.chat.completions.create(model="any", messages=[{"role": "user", "content": text}])
        await asyncio.gather(ask("A"), ask("B"), ask("B"))

asyncio.run(main())
"""


def test_retries_of_concurrent_requests_ask_the_model_once_each(tmp_path: Path, retried: list[Any]):
    class Slow(Counting):
        async def respond(self, request: Request) -> Response:
            await until_async(lambda: retried)
            return await super().respond(request)

    model = Slow()
    rollout = collected(PARALLEL, tmp_path, model)
    calls = len(rollout.calls) + sum(len(thread.calls) for thread in rollout.threads)
    assert len(model.asked) == calls == 3, "two equal requests, neither of them a retry"


def test_repeating_a_request_after_its_answer_is_a_new_call(tmp_path: Path):
    source = CLAUDE + "\nAnthropic(max_retries=0).messages.create(model='any', max_tokens=50, messages=said)\n"
    assert len(collected(source, tmp_path).calls) == 2


@pytest.mark.parametrize(
    ("source", "kind", "cause"),
    [
        ("import sys; sys.exit('I give up')", "exit", "I give up"),
        ("pass", "no_calls", "never called the model"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "exit", "status -9"),
    ],
)
def test_a_program_that_fails_fails_its_rollout_with_a_kind(tmp_path: Path, source: str, kind: str, cause: str):
    rollout = collected(source, tmp_path)
    assert rollout.outcome is Outcome.FAILED
    assert rollout.error is not None
    assert (rollout.error.stage, rollout.error.kind) == ("agent", kind)
    assert cause in rollout.error.cause


GOES_ON = """
asked_tool = tool
def tool(call):
    try:
        return asked_tool(call)
    except OSError:
        return "The tool is broken."
"""


def test_a_tool_that_cannot_run_fails_the_rollout_although_its_program_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async def broken(episode: Episode, name: str, arguments: str) -> str:
        raise Failure("gone", "the sandbox is gone")

    monkeypatch.setattr(Episode, "call_tool", broken)
    rollout = collected(PLAIN + GOES_ON + TOOLS, tmp_path)
    assert (rollout.outcome, rollout.reward) == (Outcome.FAILED, None)
    assert rollout.error is not None
    assert (rollout.error.stage, rollout.error.kind) == ("tool", "gone")


def test_the_failure_names_an_unreachable_model_and_not_the_programs_traceback(tmp_path: Path):
    with pytest.raises(UserError, match="cannot reach http://127.0.0.1:9"):  # every rollout would fail: the run stops
        collected(f"{PLAIN}model(input=items)", tmp_path, open_model("http://127.0.0.1:9#nobody", {"retries": 0}))


def test_a_program_that_cannot_be_started_is_a_failure_that_names_it(tmp_path: Path):
    environment = Environment.load("example_session_state_mgmt")
    environment.agent = CommandAgent(CommandAgent.Config(command=["no-such-program"]))
    (rollout,) = ludus.collect(environment, model=Counting(), input=ROWS).rollouts
    assert rollout.error is not None
    assert "cannot start no-such-program" in rollout.error.cause


def test_a_program_that_ends_with_an_error_at_its_last_step_gets_a_verdict(tmp_path: Path):
    rollout = collected(PLAIN + TOOLS, tmp_path, max_steps=1)
    assert (rollout.stop_reason, rollout.reward) == ("max_steps", 1.0), "the second call raised"


def test_a_program_that_ends_well_after_a_failed_model_call_fails(tmp_path: Path):
    class Failing(Counting):
        async def respond(self, request: Request) -> Response:
            raise Failure("http_400", "too long")

    swallows = "try:\n    model(input=items)\nexcept Exception:\n    sys.exit(0)\n"
    rollout = collected(PLAIN + swallows + TOOLS, tmp_path, Failing())
    assert rollout.reward is None
    assert rollout.error is not None
    assert (rollout.error.stage, rollout.error.kind) == ("model", "http_400")


#: A call of /chat/completions with settings of its own.
SAMPLING = """
said = [{"role": "user", "content": "hi"}]
body = {"model": "any", "messages": said, "temperature": 0.3, "max_tokens": 50}
post(os.environ["OPENAI_BASE_URL"] + "/chat/completions", os.environ["OPENAI_API_KEY"], json.dumps(body))
"""


def test_the_operator_decides_how_answers_are_sampled(tmp_path: Path):
    model = Counting()
    rollout = collected(PLAIN + SAMPLING, tmp_path, model)
    assert not {"temperature", "max_output_tokens"} & model.asked[0].params.keys()
    assert rollout.response is not None
    asked = json.loads(rollout.response.data["metadata"]["asked_sampling"])
    assert asked == {"max_output_tokens": 50, "temperature": 0.3}


def test_the_settings_of_a_row_for_the_models_server_reach_it_from_a_program(tmp_path: Path):
    model, metadata = Counting(), {"extra_body": '{"min_p": 0.1}'}
    program = tmp_path / "program.py"
    program.write_text(PLAIN + SAMPLING)
    environment = Environment.load("example_session_state_mgmt")
    environment.agent = CommandAgent(CommandAgent.Config(command=[sys.executable, str(program)]))
    params = {**ROWS[0]["responses_create_params"], "metadata": metadata}
    ludus.collect(environment, model=model, input=[{**ROWS[0], "responses_create_params": params}])
    assert model.asked[0].params["metadata"] == metadata


SEARCHING = """
import json, os, sys, urllib.error, urllib.request
tools = [{"type": "web_search_20250305", "name": "web_search"}]
body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5, "tools": tools}
url, key = os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages", {"x-api-key": os.environ["ANTHROPIC_API_KEY"]}
try:
    urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), key))
except urllib.error.HTTPError as error:
    sys.exit(error.read().decode())
"""


def test_tools_of_the_provider_fail_a_call_unless_the_settings_drop_them(tmp_path: Path):
    refused = collected(SEARCHING, tmp_path)
    assert refused.error is not None
    assert "cannot use the tool web_search_20250305" in refused.error.cause
    assert "agent.server_tools: drop" in refused.error.cause
    model = Counting()
    rollout = collected(SEARCHING, tmp_path, model, server_tools="drop")
    assert "tools" not in model.asked[0].params
    assert rollout.response is not None
    assert rollout.response.data["metadata"]["dropped_tools"] == "web_search_20250305"


def test_max_steps_limits_the_programs_model_calls(tmp_path: Path):
    source = "model(input=items)\ntry:\n    model(input=items)\nexcept Exception: pass\n"
    rollout = collected(PLAIN + source, tmp_path, max_steps=1)
    assert rollout.stop_reason == "max_steps"
    assert len(rollout.calls) == 1


def test_a_program_gets_no_key_of_ours_and_leaves_no_process_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MY_PRIVATE_KEY", "sk-private")
    monkeypatch.setenv("MY_SETTING", "blue")
    seen = tmp_path / "seen"
    source = (
        f"import os, json, subprocess, pathlib\n"
        f"child = subprocess.Popen(['sleep', '600'])\n"
        f"pathlib.Path({str(seen)!r}).write_text(json.dumps([dict(os.environ), os.getcwd(), child.pid]))\n"
        f"{PLAIN}model(input=items)"
    )
    rollout = collected(source, tmp_path, pass_env=["MY_SETTING"])
    assert rollout.error is None
    import json

    environment, folder, child = json.loads(seen.read_text())
    assert "MY_PRIVATE_KEY" not in environment
    assert environment["MY_SETTING"] == "blue"
    assert not Path(folder).exists()
    until_gone(child)
    assert environment["OPENAI_API_KEY"] not in str(rollout.to_row())


def test_a_made_up_key_is_refused_with_401(tmp_path: Path):
    rollout = collected(f"{PLAIN}model(key='made-up', input=items)", tmp_path)
    assert rollout.error is not None
    assert "401" in rollout.error.cause
