"""Programs that continue a response by its id: the proxy keeps the responses of a rollout."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import lazily
import pytest
from proxied import proxied

from ludus.agents import stored_responses
from ludus.agents.program_calls import ProgramCalls
from ludus.agents.stored_responses import StoredResponses
from ludus.http.messages import Refusal
from ludus.model import Model, Request
from ludus.response import Response, function_call, message, texts_of

if TYPE_CHECKING:
    import anthropic
    import openai
else:
    anthropic = lazily.imported("anthropic", "pip install 'ludus-gym[dev]'")
    openai = lazily.imported("openai", "pip install 'ludus-gym[dev]'")


class Listing(Model):
    """Answers with the texts that it was sent; calls the first tool, if there is one."""

    name = "listing"

    async def respond(self, request: Request) -> Response:
        if tools := request.params.get("tools"):
            return Response.of(function_call(tools[0]["name"], {"command": "ls"}, call_id="c1"))
        assert "previous_response_id" not in request.params
        return Response.of(message("+".join(texts_of(item) for item in request.input)))


@pytest.fixture(scope="module")
def program() -> Iterator[ProgramCalls]:
    with proxied(Listing()) as registered:
        yield registered


@pytest.fixture(scope="module")
def client(program: ProgramCalls) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{program.url}/v1", api_key=program.key, max_retries=0) as made:
        yield made


def test_the_items_of_earlier_responses_come_first(client: openai.OpenAI):
    first = client.responses.create(model="m", input="a")
    second = client.responses.create(model="m", input="b", previous_response_id=first.id)
    other = client.responses.create(model="m", input="c", previous_response_id=first.id)
    with client.responses.stream(model="m", input="d", previous_response_id=second.id) as stream:
        third = stream.get_final_response()
    texts = [response.output_text for response in (first, second, other, third)]
    assert texts == ["a", "a+a+b", "a+a+c", "a+a+b+a+a+b+d"]
    assert (second.previous_response_id, second.store) == (first.id, True)
    assert client.responses.retrieve(second.id).output_text == "a+a+b"


def test_an_unknown_id_is_a_404_with_a_code(client: openai.OpenAI):
    unstored = client.responses.create(model="m", input="a", store=False)
    for previous in ("resp_unknown", unstored.id):
        with pytest.raises(openai.NotFoundError) as raised:
            client.responses.create(model="m", input="b", previous_response_id=previous)
        assert raised.value.code == "previous_response_not_found"
        with pytest.raises(openai.NotFoundError):
            client.responses.retrieve(previous)


def test_what_only_openais_servers_keep_is_refused_by_name(client: openai.OpenAI):
    with pytest.raises(openai.BadRequestError, match="conversation is kept on OpenAI's servers only"):
        client.responses.create(model="m", input="a", conversation="conv_1")
    tools: Any = [{"type": "web_search"}]
    with pytest.raises(openai.BadRequestError, match="cannot use the tool web_search.*server_tools: drop.*declaration"):
        client.responses.create(model="m", input="a", tools=tools)


def test_another_rollout_does_not_see_the_responses(client: openai.OpenAI):
    stored = client.responses.create(model="m", input="a")
    stranger = client.with_options
    with proxied(Listing()) as other, pytest.raises(openai.NotFoundError):
        stranger(base_url=f"{other.url}/v1", api_key=other.key).responses.retrieve(stored.id)


def test_a_bash_tool_of_anthropic_is_called_by_the_policy_and_run_by_the_client(program: ProgramCalls):
    ask: Any = [{"role": "user", "content": "hi"}]
    tools: Any = [{"type": "bash_20250124", "name": "bash"}]
    with anthropic.Anthropic(base_url=program.url, api_key=program.key, max_retries=0) as claude:
        answer = claude.messages.create(model="m", max_tokens=9, messages=ask, tools=tools)
    assert answer.stop_reason == "tool_use"
    block: Any = answer.content[0]
    assert (block.type, block.name, block.input) == ("tool_use", "bash", {"command": "ls"})


def test_old_responses_are_dropped_above_the_limit(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(stored_responses, "KEPT_BYTES", 100)
    stored = StoredResponses()
    for number in range(4):
        stored.keep({"input": "x"}, {"id": f"r{number}", "output": []}, 40)
    assert [number for number in range(4) if stored.get(f"r{number}")] == [2, 3]
    with pytest.raises(Refusal, match="no response 'r0' is stored"):
        stored.continued({"input": "y", "previous_response_id": "r0"})


def test_a_retry_keeps_one_response_and_an_id_that_comes_twice_is_replaced():
    stored, answer = StoredResponses(), {"id": "same", "output": [message("1")]}
    first = stored.keep({"input": "x"}, answer, 1)
    assert stored.keep({"input": "x"}, answer, 1) is first
    second = stored.keep({"input": "y", "previous_response_id": "same"}, {"id": "same", "output": []}, 1)
    assert second["id"] != "same"
    items = stored.continued({"input": "z", "previous_response_id": second["id"]})["input"]
    assert [texts_of(item) for item in items] == ["x", "1", "y", "z"]


@pytest.mark.parametrize("previous", [3, ["r"], {"id": "r"}, "", "x" * 100_000])
def test_any_value_of_an_id_is_answered(previous: Any):
    with pytest.raises(Refusal) as raised:
        StoredResponses().continued({"input": "y", "previous_response_id": previous})
    assert raised.value.status == 404
    assert len(str(raised.value)) < 300
