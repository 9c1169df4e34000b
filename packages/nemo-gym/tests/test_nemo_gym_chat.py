"""Chat Completions' classes check requests and keep answers; the client retries what can pass and nothing else."""

from __future__ import annotations

import pickle
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from nemo_gym import _endpoint
from nemo_gym import openai_utils as api
from pydantic import TypeAdapter, ValidationError

aiohttp = pytest.importorskip("aiohttp", reason="the client needs aiohttp")
from aiohttp import web  # noqa: E402

TOKENS = {"prompt_token_ids": [1, 2], "generation_token_ids": [3], "generation_log_probs": [-0.5]}
CALL = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
REQUEST = api.NeMoGymChatCompletionCreateParamsNonStreaming


def completion(**message: Any) -> api.NeMoGymChatCompletion:
    choice = {"finish_reason": "stop", "index": 0, "message": {"role": "assistant", **message}}
    body = {"id": "c", "choices": [choice], "created": 1, "model": "m", "object": "chat.completion"}
    return api.NeMoGymChatCompletion.model_validate(body)


def test_a_chat_request_needs_only_messages_and_refuses_unknown_fields():
    body = {"messages": [{"role": "user", "content": "hi"}]}
    assert REQUEST.model_validate(body).model_dump(exclude_unset=True) == body
    extensions = {"chat_template_kwargs": {"a": 1}, "thinking": {"type": "enabled"}, "output_config": {"effort": "low"}}
    extensions |= {"verbosity": "low", "prompt_cache_key": "k", "prompt_cache_retention": "24h"}
    extensions |= {"safety_identifier": "s"}
    assert REQUEST.model_validate({**body, **extensions}).model_dump(exclude_unset=True) == {**body, **extensions}
    for wrong in ({}, {**body, "temperatur": 1}, {**body, "stream": True}):
        with pytest.raises(ValidationError):
            REQUEST.model_validate(wrong)


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": [{"type": "text", "text": "x"}, {"type": "image_url", "image_url": {"url": "u"}}]},
        {"role": "system", "content": "x"},
        {"role": "developer", "content": "x"},
        {"role": "tool", "content": "4", "tool_call_id": "c"},
        {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": [CALL]},
        {"role": "assistant", "content": "x", **TOKENS, "routed_experts": None},
        {"role": "assistant", "tool_calls": [{"id": "c", "type": "custom", "custom": {"name": "f", "input": "x"}}]},
    ],
)
def test_chat_messages_come_back_unchanged(message: dict[str, Any]):
    assert REQUEST.model_validate({"messages": [message]}).model_dump(exclude_unset=True) == {"messages": [message]}
    assert TypeAdapter(api.NeMoGymChatCompletionMessageParam).validate_python(message) == message


@pytest.mark.parametrize("message", [{}, {"role": "robot", "content": "x"}, {"role": [], "content": "x"}, "hi"])
def test_a_message_without_a_known_role_is_refused(message: object):
    with pytest.raises(ValidationError, match="`role` must be"):
        REQUEST.model_validate({"messages": [message]})


def test_a_name_beside_the_function_of_a_call_is_dropped():
    body = {"messages": [{"role": "assistant", "tool_calls": [{**CALL, "name": "f"}]}]}
    assert REQUEST.model_validate(body).model_dump(exclude_unset=True)["messages"][0]["tool_calls"] == [CALL]


def test_a_completion_keeps_unknown_fields_and_has_typed_calls():
    answer = completion(content=None, tool_calls=[CALL], reasoning_content="hm")
    message = answer.choices[0].message
    assert message.tool_calls is not None
    assert message.tool_calls[0].function.name == "f"
    dumped = answer.model_dump()["choices"][0]["message"]
    assert (dumped["reasoning_content"], dumped["tool_calls"]) == ("hm", [CALL])
    assert completion(content="x").choices[0].message.tool_calls is None


def test_token_fields_of_a_message_choose_its_training_form():
    message = completion(content="x", **TOKENS).choices[0].message
    assert type(message) is api.NeMoGymChatCompletionMessageForTraining
    assert message.generation_token_ids == [3]
    assert api.NeMoGymChoice(finish_reason="stop", index=0, message=message).message is message


# --- the client -----------------------------------------------------------------------------------------------------


class Endpoint:
    """Answers requests from a script of (status, body); the last entry repeats."""

    def __init__(self, *script: tuple[int, Any]) -> None:
        self.script = list(script)
        self.requests: list[tuple[str, str, Any, str]] = []

    async def answer(self, request: web.Request) -> web.Response:
        body = await request.json() if request.can_read_body else None
        self.requests.append((request.method, request.path, body, request.headers["Authorization"]))
        status, reply = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        return web.json_response(reply, status=status)


@asynccontextmanager
async def served(endpoint: Endpoint, **settings: Any) -> AsyncIterator[api.NeMoGymAsyncOpenAI]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", endpoint.answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    try:
        yield api.NeMoGymAsyncOpenAI(base_url=f"http://{host}:{port}/v1", api_key="key", **settings)
    finally:
        await runner.cleanup()


@pytest.fixture(autouse=True)
def _no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_endpoint, "RETRY_SECONDS", 0)


def test_the_retry_statuses():
    assert set(api.RATE_LIMIT_ERROR_CODES) == {429, 502, 503, 504, 520}
    assert set(api.RETRY_ERROR_CODES) == {429, 502, 503, 504, 520, 500, 404, 408}


@pytest.mark.parametrize(
    ("call", "method", "path"),
    [
        (lambda client: client.create_models(), "GET", "/v1/models"),
        (lambda client: client.create_chat_completion(a=1), "POST", "/v1/chat/completions"),
        (lambda client: client.create_completion(a=1), "POST", "/v1/completions"),
        (lambda client: client.create_response(a=1), "POST", "/v1/responses"),
        (lambda client: client.create_tokenize(a=1), "POST", "/tokenize"),
    ],
)
async def test_each_method_sends_its_body_and_returns_a_dictionary(
    call: Callable[[Any], Awaitable[Any]], method: str, path: str
):
    endpoint = Endpoint((200, {"ok": True}))
    async with served(endpoint) as client:
        assert await call(client) == {"ok": True}
    assert endpoint.requests == [(method, path, None if method == "GET" else {"a": 1}, "Bearer key")]


@pytest.mark.parametrize("status", [500, 404, 408, 429])
async def test_a_retried_status_ends_after_the_allowed_attempts(status: int):
    endpoint = Endpoint((status, {"error": "later"}))
    async with served(endpoint) as client:
        with pytest.raises(aiohttp.ClientResponseError) as caught:
            await client.create_response(input="hi")
    assert len(endpoint.requests) == 3
    assert (caught.value.status, caught.value.response_content) == (status, b'{"error": "later"}')


async def test_only_an_internal_client_waits_for_rate_limits_to_end():
    script = [(429, {})] * 5 + [(503, {})] * 5 + [(200, {"ok": True})]
    async with served(Endpoint(*script), internal=True) as client:
        assert await client.create_response(input="hi") == {"ok": True}
    async with served(Endpoint(*script), max_http_attempts=10) as client:
        with pytest.raises(aiohttp.ClientResponseError):
            await client.create_response(input="hi")


async def test_a_request_error_is_not_retried():
    endpoint = Endpoint((400, {"error": "bad"}))
    async with served(endpoint) as client:
        with pytest.raises(aiohttp.ClientResponseError):
            await client.create_response(input="hi")
    assert len(endpoint.requests) == 1


@pytest.mark.parametrize(("status", "body"), [(401, {}), (403, {}), (429, {"error": {"code": "insufficient_quota"}})])
async def test_a_bad_key_or_a_spent_quota_ends_this_call_and_all_later_ones(status: int, body: Any):
    endpoint = Endpoint((status, body), (200, {}))
    async with served(endpoint, internal=True) as client:
        for _ in range(2):
            with pytest.raises(api.PermanentEndpointError, match="API key") as caught:
                await client.create_response(input="hi")
    assert len(endpoint.requests) == 1
    assert pickle.loads(pickle.dumps(caught.value)).status == status


async def test_lost_connections_are_retried_as_often_as_allowed(unused_tcp_port: int):
    client = api.NeMoGymAsyncOpenAI(
        base_url=f"http://127.0.0.1:{unused_tcp_port}/v1", api_key="key", max_connection_retries=2
    )
    with pytest.raises(aiohttp.ClientConnectionError):
        await client.create_models()
