"""Unusual answers of providers: valid ones are scored, and all others are failures without a reward."""

from __future__ import annotations

import asyncio
import time
from email.utils import formatdate
from typing import Any

import orjson
import pytest
import servers
from waiting import CEILING

import ludus
from ludus.dialects.responses_stream import ResponsesStream
from ludus.dialects.sse import encode_event
from ludus.errors import Failure
from ludus.model import Request
from ludus.models import open_model
from ludus.response import Response, is_message

KEY = "sk-proj-quoted-by-the-provider"
CHAT = {"id": "c", "choices": [{"message": {"role": "assistant", "content": "done"}, "finish_reason": "stop"}]}


def answering(server: servers.Server, status: int, answer: Any, *headers: str) -> None:
    """Make the server send the same answer to every request."""
    data = answer if isinstance(answer, bytes) else orjson.dumps(answer)
    lines = [f"HTTP/1.1 {status} X", f"content-length: {len(data)}", *headers, "", ""]

    async def respond(path, body, writer):
        server.bodies.append(body)
        writer.write("\r\n".join(lines).encode() + data)
        await writer.drain()
        return True

    server.respond = respond


def collected(server: servers.Server, counter, rows, **settings):
    named = {f"model.{key}": value for key, value in {"retries": 0, **settings}.items()}
    return ludus.collect(counter, model=f"{server.url}#m", input=rows(1, expected_count=0), settings=named).rollouts[0]


@pytest.mark.parametrize(
    "message",
    [
        "Unsupported parameter: 'max_tokens' is not supported with this model.",
        "max_tokens is too large: 200000. This model supports at most 16384 completion tokens",
    ],
)
def test_a_token_limit_that_the_endpoint_refuses_is_a_failure_without_a_reward(server, counter, rows, message):
    answering(server, 400, {"error": {"message": message}})
    rollout = collected(server, counter, rows)
    assert (rollout.error.stage, rollout.error.kind, rollout.reward) == ("model", "http_400", None)


@pytest.mark.parametrize("limit", [4096, 5000])
@pytest.mark.parametrize(
    "message",
    [
        "max_tokens={} cannot be greater than max_model_len=4096. Please request fewer output tokens.",
        "'max_tokens' is too large: {}. This model's maximum context length is 4,096 tokens",
        "This model's maximum context length is 4096 tokens. However, you requested {} tokens in the completion",
    ],
)
def test_a_limit_that_leaves_no_prompt_room_is_a_failure_and_not_a_prompt_that_is_too_long(
    server, counter, rows, message, limit
):
    answering(server, 400, {"error": {"message": message.format(limit)}})
    rollout = collected(server, counter, rows, max_output_tokens=limit)
    assert (rollout.error.stage, rollout.error.kind, rollout.reward) == ("model", "http_400", None)
    assert "lower max_output_tokens" in rollout.error.cause
    assert ".." not in rollout.error.cause
    rollout = collected(server, counter, rows, max_output_tokens=4000)
    assert rollout.stop_reason == "max_output_tokens", "the prompt has grown until this limit does not fit"


@pytest.mark.parametrize(
    "error",
    [
        {"message": "the request exceeds the available context size, try increasing it"},
        {"message": "too many tokens", "type": "exceed_context_size_error", "code": 400},
        {
            "message": "Please reduce the length of the messages or completion.",
            "type": "invalid_request_error",
            "code": "context_length_exceeded",
        },
        {"message": "'max_tokens' is too large: 9000. This model's maximum context length is 4096 tokens"},
    ],
)
def test_the_error_messages_of_servers_about_a_too_long_prompt_are_recognised(server, counter, rows, error):
    answering(server, 400, {"error": error})
    rollout = collected(server, counter, rows)
    assert rollout.error is None
    assert rollout.stop_reason == "max_output_tokens"


@pytest.mark.parametrize(
    "answer",
    [
        *({"status": status, "output": []} for status in ("queued", "in_progress", "cancelled", "failed")),
        {"status": "cancelled", "output": [servers.SAID]},
        {"status": "completed", "output": [], "error": {"message": "out of memory"}},
        {"output": [], "error": {"message": "out of memory"}},
    ],
)
def test_an_answer_that_failed_or_is_unfinished_is_a_bad_response_without_a_reward(server, counter, rows, answer):
    answering(server, 200, answer)
    rollout = collected(server, counter, rows)
    assert (rollout.error.stage, rollout.error.kind, rollout.reward) == ("model", "bad_response", None)


@pytest.mark.parametrize("status", ["completed", None, ""])
def test_an_answer_with_or_without_a_status_is_accepted(server, counter, rows, status):
    answering(server, 200, {"status": status, "output": [servers.SAID], "error": None})
    assert collected(server, counter, rows).error is None


def test_the_type_of_the_last_event_decides_the_status(server, counter, rows):
    for kind in ("completed", "incomplete", "failed"):
        stream = ResponsesStream()
        stream.add({"type": f"response.{kind}", "response": {"status": "in_progress", "output": [servers.SAID]}})
        assert stream.result() == {"status": kind, "output": [servers.SAID]}
    end = {"type": "response.completed", "response": {"status": "in_progress", "output": [servers.SAID]}}
    answering(server, 200, encode_event(end))
    assert collected(server, counter, rows, stream=True).error is None


@pytest.mark.parametrize("api", ["responses", "chat"])
@pytest.mark.parametrize(
    "answer",
    [
        {"error": {"message": f"quota of {KEY} gone"}},
        {"status": "failed", "output": [], "error": {"message": f"{KEY} died"}},
        {"output": [5, KEY]},
        {"choices": KEY},
        *({"error": "x" * length + KEY} for length in range(150, 200, 7)),
    ],
)
def test_a_key_quoted_in_an_answer_is_not_in_the_failure(server, counter, rows, monkeypatch, api, answer):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    answering(server, 200, answer)
    rollout = collected(server, counter, rows, api=api)
    assert rollout.error.kind == "bad_response"
    assert KEY[:6] not in rollout.error.cause


@pytest.mark.parametrize("content", [5, {"type": "output_text", "text": "done"}, ["done"], True])
def test_a_message_with_malformed_content_is_a_bad_response_of_the_model(server, counter, rows, content):
    answering(server, 200, {"output": [{"type": "message", "role": "assistant", "content": content}]})
    rollout = collected(server, counter, rows)
    assert (rollout.error.stage, rollout.error.kind) == ("model", "bad_response")


@pytest.mark.parametrize("content", [None, "done", [], [{"type": "output_text", "text": "done"}], [{"type": "new"}]])
def test_the_content_of_a_message_may_be_text_parts_or_null(content):
    for kind in ({"type": "message"}, {"type": None}, {}):
        item = {**kind, "role": "assistant", "content": content}
        assert is_message(item)
        assert Response.checked({"output": [item]}).has_message


@pytest.mark.parametrize("usage", [[], "many", {"prompt_tokens": "3"}, {"completion_tokens": -1}, {"total_tokens": {}}])
def test_an_answer_with_malformed_usage_is_kept(server, counter, rows, usage):
    answering(server, 200, {**CHAT, "usage": usage})
    rollout = collected(server, counter, rows, api="chat")
    assert rollout.error is None
    assert rollout.response.output_text == "done"


@pytest.mark.parametrize("page", [b"Cannot POST %s/responses", b'{"error": {"message": "no such URL: http://%s"}}'])
async def test_auto_falls_back_to_chat_even_if_the_base_url_contains_model(server, page):
    base = f"{server.url.removesuffix('/v1')}/my-models/v1"

    async def only_chat(path, body, writer):
        if path.endswith("/chat/completions"):
            return await servers.send(writer, 200, orjson.dumps(CHAT))
        quoted = base.partition("://")[2].encode() if b"http" in page else b"/my-models/v1"
        return await servers.send(writer, 404, page % quoted)

    server.respond = only_chat
    async with open_model(f"{base}#m") as model:
        assert (await model.respond(Request("?"))).output_text == "done"


async def test_auto_does_not_fall_back_to_chat_if_the_model_is_unknown(server):
    answering(server, 404, {"error": {"message": "The model `m` does not exist."}})
    async with open_model(f"{server.url}#m") as model:
        with pytest.raises(Failure, match="The model `m` does not exist"):
            await model.respond(Request("?"))
    assert len(server.bodies) == 1


@pytest.mark.parametrize("api", ["auto", "responses", "chat"])
async def test_a_404_of_a_url_without_a_version_suggests_v1(server, api):
    answering(server, 404, {"detail": "Not Found"})
    bare = server.url.removesuffix("/v1")
    for url, hint in ((f"{bare}#m", f"{bare}/v1"), (f"{bare}/llm/?key=sk-secret123#m", f"{bare}/llm/v1?key=***")):
        async with open_model(url, {"api": api}) as model:
            with pytest.raises(Failure) as caught:
                await model.respond(Request("?"))
        assert caught.value.kind == "http_404"
        assert caught.value.cause.endswith(f". The URL has no /v1: try {hint}")
    async with open_model(f"{server.url}#m", {"api": api}) as model:
        with pytest.raises(Failure) as caught:
            await model.respond(Request("?"))
    assert "try" not in caught.value.cause


async def test_a_404_because_of_the_model_does_not_suggest_v1(server):
    answering(server, 404, {"error": {"message": "The model `m` does not exist."}})
    async with open_model(f"{server.url.removesuffix('/v1')}#m") as model:
        with pytest.raises(Failure, match="does not exist.$"):
            await model.respond(Request("?"))


@pytest.mark.parametrize("api", ["responses", "chat"])
async def test_settings_apply_if_a_row_holds_null(server, api):
    answering(server, 200, CHAT if api == "chat" else {"output": [servers.SAID]})
    settings = {"api": api, "temperature": 0.2, "top_p": 0.9, "max_output_tokens": 5}
    nulls = dict.fromkeys(["temperature", "max_output_tokens", "model", "instructions"])
    async with open_model(f"{server.url}#m", settings) as model:
        await model.respond(Request("?", top_p=0.5, params=nulls))
    limit = "max_tokens" if api == "chat" else "max_output_tokens"
    sent = {key: server.bodies[0][key] for key in ("model", "temperature", "top_p", limit)}
    assert sent == {"model": "m", "temperature": 0.2, "top_p": 0.5, limit: 5}


def test_the_failure_of_a_redirect_names_its_target(server, counter, rows):
    answering(server, 308, b"", "location: https://elsewhere.example/v1/responses?sig=abcdef")
    rollout = collected(server, counter, rows)
    assert rollout.error.kind == "http_308"
    assert rollout.error.cause.endswith("answered 308: redirected to https://elsewhere.example/v1/responses?sig=***")


async def test_a_retry_after_date_in_the_past_is_retried_at_once(server):
    dates = [formatdate(time.time() - 60, usegmt=True)]

    async def busy_once(path, body, writer):
        if dates:
            writer.write(f"HTTP/1.1 429 X\r\nretry-after: {dates.pop()}\r\ncontent-length: 0\r\n\r\n".encode())
            await writer.drain()
            return True
        return await servers.send(writer, 200, orjson.dumps({"output": [servers.SAID]}))

    server.respond = busy_once
    async with open_model(
        f"{server.url}#m", {"retries": {"busy": 1, "first_pause": 3600, "longest_pause": 3600}}
    ) as model:
        async with asyncio.timeout(CEILING):
            assert (await model.respond(Request("?"))).output_text == "done"


def test_an_item_with_a_null_type_is_read_as_an_item_without_a_type():
    item = {"type": None, "role": "assistant", "content": "hello"}
    response = Response.checked({"output": [item]})
    assert response.output_text == "hello"
    assert response.output == [{"role": "assistant", "content": "hello"}]
