"""Model and agent servers, called with the official SDKs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import lazily
import pytest
from serving import COUNTER, COUNTER_ROW, Web, served, url_of

from ludus.model import Request
from ludus.remote.http import connect
from ludus.response import Response, function_call, message, reasoning
from ludus.serve.serving import Serving
from ludus.tokens import Tokens

if TYPE_CHECKING:
    import anthropic
    import openai
else:
    anthropic = lazily.imported("anthropic", "pip install 'ludus-gym[dev]'")
    openai = lazily.imported("openai", "pip install 'ludus-gym[dev]'")

TOOL = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    "strict": False,
}


def weather(request: Request) -> Response:
    """Reasons and calls the tool, then repeats the tool's output. Every response has token ids."""
    usage = {"input_tokens": 7, "output_tokens": 3, "total_tokens": 10}
    done = [item["output"] for item in request.input if item.get("type") == "function_call_output"]
    tokens = Tokens([1, 2, 3], [4, 5], [-0.1, -0.2])
    if done or not request.params.get("tools"):
        text = f"It is {done[-1]}." if done else f"Hello, {request.input[-1]['content']}"
        return Response.of(message(text), usage=usage, tokens=tokens)
    call = function_call("get_weather", {"city": "Oslo"}, call_id="call_7")
    return Response.of(reasoning("They want the weather."), call, usage=usage, tokens=tokens)


@pytest.fixture(scope="module")
def serving() -> Iterator[Serving]:
    with served(COUNTER, model="scripted:test_serve_models:weather", tokens=True) as running:
        yield running


@pytest.fixture
def client(serving: Serving) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{url_of(serving, 'policy_model')}/v1", api_key="none", max_retries=0) as made:
        yield made


@pytest.fixture
def claude(serving: Serving) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=url_of(serving, "policy_model"), api_key="none", max_retries=0) as made:
        yield made


def test_responses_create_with_a_tool_call(client: openai.OpenAI):
    tools: Any = [TOOL]
    first = client.responses.create(model="m", input="Weather in Oslo?", tools=tools)
    assert [item.type for item in first.output] == ["reasoning", "function_call"]
    call = first.output[1]
    items: Any = [
        {"role": "user", "content": "Weather in Oslo?"},
        *(item.model_dump(exclude_none=True) for item in first.output),
        {"type": "function_call_output", "call_id": getattr(call, "call_id", ""), "output": "cold"},
    ]
    second = client.responses.create(model="m", input=items, tools=tools)
    assert second.output_text == "It is cold."
    assert second.usage is not None
    assert second.usage.total_tokens == 10


def test_responses_stream(client: openai.OpenAI):
    with client.responses.stream(model="m", input="you") as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.completed"
    assert final.output_text == "Hello, you"


def test_chat_completions_create(client: openai.OpenAI):
    tools: Any = [{"type": "function", "function": {key: TOOL[key] for key in ("name", "description", "parameters")}}]
    ask: Any = [{"role": "user", "content": "Weather?"}]
    first = client.chat.completions.create(model="m", messages=ask, tools=tools)
    calls = first.choices[0].message.tool_calls
    assert calls is not None
    assert first.choices[0].finish_reason == "tool_calls"
    more: Any = [*ask, first.choices[0].message, {"role": "tool", "tool_call_id": calls[0].id, "content": "cold"}]
    assert client.chat.completions.create(model="m", messages=more).choices[0].message.content == "It is cold."


def test_chat_completions_stream(client: openai.OpenAI):
    ask: Any = [{"role": "user", "content": "you"}]
    options: Any = {"include_usage": True}
    chunks = list(client.chat.completions.create(model="m", messages=ask, stream=True, stream_options=options))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == "Hello, you"
    assert chunks[-1].usage is not None


def test_anthropic_messages_create_and_stream(claude: anthropic.Anthropic):
    ask: Any = [{"role": "user", "content": "Weather?"}]
    tools: Any = [{"name": "get_weather", "description": "", "input_schema": TOOL["parameters"]}]
    first = claude.messages.create(model="m", max_tokens=100, messages=ask, tools=tools)
    assert first.stop_reason == "tool_use"
    assert first.content[-1].type == "tool_use"
    with claude.messages.stream(model="m", max_tokens=100, messages=[{"role": "user", "content": "you"}]) as stream:
        assert "".join(stream.text_stream) == "Hello, you"


def test_models_list_names_the_model(client: openai.OpenAI):
    assert [model.id for model in client.models.list()] == ["scripted:test_serve_models:weather"]


def test_token_ids_are_on_the_last_item_of_each_model_call(serving: Serving):
    answer = Web(url_of(serving, "policy_model")).post("/v1/responses", {"input": "hi", "tools": [TOOL]}).json()
    assert "prompt_token_ids" not in answer["output"][0]
    assert answer["output"][-1]["prompt_token_ids"] == [1, 2, 3]
    assert answer["output"][-1]["generation_log_probs"] == [-0.1, -0.2]
    chat = {"messages": [{"role": "user", "content": "hi"}]}
    reply = Web(url_of(serving, "policy_model")).post("/v1/chat/completions", chat).json()["choices"][0]["message"]
    assert reply["generation_token_ids"] == [4, 5]


def test_token_ids_are_left_out_unless_requested():
    with served(COUNTER, model="scripted:test_serve_models:weather") as serving:
        web = Web(url_of(serving, "policy_model"))
        assert "prompt_token_ids" not in web.post("/v1/responses", {"input": "hi"}).text
        captured = web.post("/ng-rollout/7-0/training-token-capture/v1/responses", {"input": "hi"}).json()
        assert captured["output"][-1]["prompt_token_ids"] == [1, 2, 3]


def test_token_fields_in_the_input_reach_the_model_as_tokens():
    with served(COUNTER, model="scripted:test_serve_models:prefixes") as serving:
        items = [
            {"role": "user", "content": "hi"},
            {"type": "message", "role": "assistant", "content": "ho", "prompt_token_ids": [1, 2],
             "generation_token_ids": [3], "generation_log_probs": [-0.5]},
            {"role": "user", "content": "again"},
        ]  # fmt: skip
        reply = Web(url_of(serving, "policy_model")).post("/v1/responses", {"input": items}).json()
        assert reply["output"][0]["content"][0]["text"] == "[1, 2] [3] turn 1 clean True"


def prefixes(request: Request) -> Response:
    tokens = request.tokens
    assert tokens is not None
    clean = all("prompt_token_ids" not in item for item in request.input)
    text = f"{list(tokens.prompt_ids)} {tokens.generated_ids} turn {request.turn} clean {clean}"
    return Response.of(message(text))


def test_an_invalid_request_is_refused(client: openai.OpenAI, serving: Serving):
    wrong: Any = 3
    with pytest.raises(openai.UnprocessableEntityError):
        client.responses.create(model="m", input=wrong)
    web = Web(url_of(serving, "policy_model"))
    assert web.post("/v1/chat/completions", {"messages": "no"}).status == 400
    assert web.post("/v1/messages", {"messages": 7}).status == 400
    assert web.get("/v1/nothing").status == 404
    assert web.get("/v1/responses").status == 405


def test_an_agent_server_returns_the_whole_trajectory():
    with served("example_single_tool_call", model="scripted:test_serve_models:weather") as serving:
        url = url_of(serving, "example_single_tool_call_simple_agent")
        with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
            tools: Any = [TOOL]
            found = client.responses.create(model="m", input="Weather in Oslo?", tools=tools)
            assert [item.type for item in found.output][1:3] == ["function_call", "function_call_output"]
            assert "cold" in found.output_text
            ask: Any = [{"role": "user", "content": "Weather in Oslo?"}]
            text = client.chat.completions.create(model="m", messages=ask).choices[0].message.content
            assert "cold" in str(text)
        with anthropic.Anthropic(base_url=url, api_key="none", max_retries=0) as claude:
            reply = claude.messages.create(model="m", max_tokens=10, messages=ask)
            assert "cold" in getattr(reply.content[-1], "text", "")


def test_run_returns_the_row_with_its_reward_and_token_ids(serving: Serving):
    row = {**COUNTER_ROW, "_rowidx": 5, "agent_ref": {"type": "responses_api_agents", "name": "mine"}}
    found = Web(url_of(serving, f"{COUNTER}_simple_agent")).post("/run", row).json()
    assert (found["reward"], found["_rowidx"], found["agent_ref"]["name"]) == (0.0, 5, "mine")
    with_ids = [item for item in found["response"]["output"] if item.get("generation_token_ids")]
    assert [item["type"] for item in with_ids] == ["function_call", "message"]  # the last items of two model calls
    assert [item["prompt_token_ids"] for item in with_ids] == [[1, 2, 3], [1, 2, 3]]


def test_a_failed_rollout_is_an_error_reply_with_a_stage_and_no_reward():
    with served(COUNTER, model="http://127.0.0.1:9#nobody", settings={"model.retries": 0}) as serving:
        failed = Web(url_of(serving, f"{COUNTER}_simple_agent")).post("/run", COUNTER_ROW)
    assert failed.status == 502
    assert (failed.json()["stage"], failed.json()["kind"]) == ("model", "refused")
    assert "reward" not in failed.json()


async def test_a_bad_row_is_an_error_reply_with_stage_kind_and_field(serving: Serving):
    row = {"responses_create_params": {"input": "hi"}, "initial_count": "many"}
    url = url_of(serving, f"{COUNTER}_simple_agent")
    refused = Web(url).post("/run", row)
    assert refused.status == 422
    found = refused.json()
    assert (found["stage"], found["kind"]) == ("open", "bad_row")
    assert [each["loc"] for each in found["detail"]] == [["body", "initial_count"], ["body", "expected_count"]]
    assert "reward" not in found
    async with connect(url, "LUDUS_TEST_NO_TOKEN") as client:
        failure = client.failure(await client.post("/run", json.dumps(row).encode()))
    assert (failure.stage, failure.kind) == ("open", "bad_row")
    assert failure.cause.startswith("initial_count: Input should be a valid integer")
    assert failure.cause.endswith("; expected_count: Field required")


def test_a_policy_in_the_request_is_used_only_if_the_operator_allows_its_url(serving: Serving):
    upstream = url_of(serving, "policy_model")
    policy = {"base_url": f"{upstream}/v1", "api_key": "sk-policy-secret", "model": "m"}
    refused = Web(url_of(serving, f"{COUNTER}_simple_agent")).post("/run", {**COUNTER_ROW, "policy": policy})
    assert refused.status == 403
    with served(COUNTER, allow_policy=[upstream]) as other:
        web = Web(url_of(other, f"{COUNTER}_simple_agent"))
        found = web.post("/run", {**COUNTER_ROW, "policy": policy})
        assert found.json()["response"]["output"][0]["type"] == "reasoning"  # the policy's answer, not the server's
        assert "sk-policy-secret" not in found.text
        assert web.post("/run", {**COUNTER_ROW, "policy": {**policy, "base_url": f"{upstream}.evil"}}).status == 403
        assert web.post("/run", {**COUNTER_ROW, "policy": {"base_url": upstream}}).status == 422


PATCH = {"type": "custom", "name": "apply_patch", "description": "Changes files."}
SERVER = {"type": "namespace", "name": "mcp__task", "tools": [{"type": "function", "name": "look", "parameters": {}}]}


def patcher(request: Request) -> Response:
    """Calls all tools that it is offered, then says which calls and outputs it reads."""
    kinds = [str(item.get("type")) for item in request.input if "call_id" in item]
    if kinds:
        return Response.of(message(" ".join(kinds)))
    names = [tool["name"] for tool in request.params["tools"] if tool["type"] == "function"]
    calls = [function_call(name, {"input": "*** Begin"}, call_id=f"c{at}") for at, name in enumerate(names)]
    return Response.of(*calls, tokens=Tokens([1], [2], [-0.1]))


def test_custom_tools_reach_a_model_that_knows_functions_only_and_its_calls_come_back() -> None:
    asked: dict[str, Any] = {"model": "m", "input": "Patch.", "tools": [PATCH, SERVER]}
    with served(COUNTER, model="scripted:test_serve_models:patcher", tokens=True) as running:
        web = Web(url_of(running, "policy_model"))
        reply = web.post("/v1/responses", asked).json()
        patch, look = reply["output"]
        assert (patch["type"], patch["name"], patch["input"]) == ("custom_tool_call", "apply_patch", "*** Begin")
        assert (look["type"], look["name"], look["namespace"]) == ("function_call", "look", "mcp__task")
        assert look["generation_token_ids"] == [2], "the ids stay on the last item"
        assert reply["tools"] == [PATCH, SERVER]
        output = {"type": "custom_tool_call_output", "call_id": "c0", "output": "ok"}
        again = web.post(
            "/v1/responses", {**asked, "input": [{"role": "user", "content": "Patch."}, patch, output]}
        ).json()
        assert again["output"][0]["content"][0]["text"] == "function_call function_call_output"
