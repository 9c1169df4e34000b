"""What providers send beside good answers: what is no answer is not scored, and what is one is not lost."""

from __future__ import annotations

import asyncio
import time
from email.utils import formatdate
from typing import Any

import orjson
import pytest
import servers

import ludus
from ludus.dialects.responses_stream import ResponsesStream
from ludus.dialects.sse import encode_event
from ludus.errors import Failure
from ludus.model import Request
from ludus.models import open_model
from ludus.models.transport import _seconds
from ludus.response import Response, is_message

KEY = "sk-proj-quoted-by-the-provider"
CHAT = {"id": "c", "choices": [{"message": {"role": "assistant", "content": "done"}, "finish_reason": "stop"}]}


def answering(server: servers.Server, status: int, answer: Any, *headers: str) -> None:
    """Have the server answer every request alike."""
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
def test_a_limit_that_the_endpoint_does_not_take_is_a_failure_and_no_reward(server, counter, rows, message):
    answering(server, 400, {"error": {"message": message}})
    rollout = collected(server, counter, rows)
    assert (rollout.error.stage, rollout.error.kind, rollout.reward) == ("model", "http_400", None)


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
def test_a_prompt_that_is_too_long_is_known_by_what_any_server_says(server, counter, rows, error):
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
def test_an_answer_that_never_came_to_be_is_not_scored(server, counter, rows, answer):
    answering(server, 200, answer)
    rollout = collected(server, counter, rows)
    assert (rollout.error.stage, rollout.error.kind, rollout.reward) == ("model", "bad_response", None)


@pytest.mark.parametrize("status", ["completed", "incomplete", None, ""])
def test_an_answer_counts_whether_or_not_it_says_that_it_is_complete(server, counter, rows, status):
    answering(server, 200, {"status": status, "output": [servers.SAID], "error": None})
    assert collected(server, counter, rows).error is None


def test_the_event_that_ends_a_stream_says_how_it_ended(server, counter, rows):
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
def test_a_key_that_an_answer_quotes_is_shown_nowhere(server, counter, rows, monkeypatch, api, answer):
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    answering(server, 200, answer)
    rollout = collected(server, counter, rows, api=api)
    assert rollout.error.kind == "bad_response"
    assert KEY[:6] not in rollout.error.cause


@pytest.mark.parametrize("content", [5, {"type": "output_text", "text": "done"}, ["done"], True])
def test_a_message_whose_content_is_no_text_is_the_models_failure(server, counter, rows, content):
    answering(server, 200, {"output": [{"type": "message", "role": "assistant", "content": content}]})
    rollout = collected(server, counter, rows)
    assert (rollout.error.stage, rollout.error.kind) == ("model", "bad_response")


@pytest.mark.parametrize("content", [None, "done", [], [{"type": "output_text", "text": "done"}], [{"type": "new"}]])
def test_a_message_may_hold_a_text_or_parts_or_nothing(content):
    for kind in ({"type": "message"}, {"type": None}, {}):
        item = {**kind, "role": "assistant", "content": content}
        assert is_message(item)
        assert Response.checked({"output": [item]}).has_message


@pytest.mark.parametrize("usage", [[], "many", {"prompt_tokens": "3"}, {"completion_tokens": -1}, {"total_tokens": {}}])
def test_counts_that_cannot_be_read_do_not_cost_the_answer(server, counter, rows, usage):
    answering(server, 200, {**CHAT, "usage": usage})
    rollout = collected(server, counter, rows, api="chat")
    assert rollout.error is None
    assert rollout.response.output_text == "done"


@pytest.mark.parametrize("page", [b"Cannot POST %s/responses", b'{"error": {"message": "no such URL: http://%s"}}'])
async def test_a_base_url_with_model_in_it_does_not_keep_us_from_chat(server, page):
    base = f"{server.url.removesuffix('/v1')}/my-models/v1"

    async def only_chat(path, body, writer):
        if path.endswith("/chat/completions"):
            return await servers.send(writer, 200, orjson.dumps(CHAT))
        quoted = base.partition("://")[2].encode() if b"http" in page else b"/my-models/v1"
        return await servers.send(writer, 404, page % quoted)

    server.respond = only_chat
    async with open_model(f"{base}#m") as model:
        assert (await model.respond(Request("?"))).output_text == "done"


async def test_a_model_that_is_unknown_is_not_asked_for_in_chat(server):
    answering(server, 404, {"error": {"message": "The model `m` does not exist."}})
    async with open_model(f"{server.url}#m") as model:
        with pytest.raises(Failure, match="The model `m` does not exist"):
            await model.respond(Request("?"))
    assert len(server.bodies) == 1


@pytest.mark.parametrize("api", ["responses", "chat"])
async def test_settings_apply_where_a_row_says_null(server, api):
    answering(server, 200, CHAT if api == "chat" else {"output": [servers.SAID]})
    settings = {"api": api, "temperature": 0.2, "top_p": 0.9, "max_output_tokens": 5}
    nulls = dict.fromkeys(["temperature", "max_output_tokens", "model", "instructions"])
    async with open_model(f"{server.url}#m", settings) as model:
        await model.respond(Request("?", top_p=0.5, params=nulls))
    limit = "max_tokens" if api == "chat" else "max_output_tokens"
    told = {key: server.bodies[0][key] for key in ("model", "temperature", "top_p", limit)}
    assert told == {"model": "m", "temperature": 0.2, "top_p": 0.5, limit: 5}


def test_a_redirect_names_where_it_leads(server, counter, rows):
    answering(server, 308, b"", "location: https://elsewhere.example/v1/responses?sig=abcdef")
    rollout = collected(server, counter, rows)
    assert rollout.error.kind == "http_308"
    assert rollout.error.cause.endswith("answered 308: it is now at https://elsewhere.example/v1/responses?sig=***")


def test_retry_after_may_be_a_date():
    assert _seconds(formatdate(time.time() + 100, usegmt=True)) == pytest.approx(100, abs=5)
    assert _seconds("Wed, 21 Oct 2015 07:28:00 GMT") == 0
    assert _seconds("Wed, 21 Oct 2015 07:28:00 -0000") == 0
    assert [_seconds(each) for each in ("7", "soon", "", None)] == [7, None, None, None]


async def test_a_date_is_waited_for(server):
    dates = [formatdate(time.time() - 60, usegmt=True)]

    async def later(path, body, writer):
        if dates:
            writer.write(f"HTTP/1.1 429 X\r\nretry-after: {dates.pop()}\r\ncontent-length: 0\r\n\r\n".encode())
            await writer.drain()
            return True
        return await servers.send(writer, 200, orjson.dumps({"output": [servers.SAID]}))

    server.respond = later
    async with open_model(f"{server.url}#m", {"retries": {"busy": 1, "first_pause": 60}}) as model:
        async with asyncio.timeout(20):
            assert (await model.respond(Request("?"))).output_text == "done"


def test_a_null_type_is_no_type_wherever_it_is_looked_at_later():
    item = {"type": None, "role": "assistant", "content": "hello"}
    response = Response.checked({"output": [item]})
    assert response.output_text == "hello"
    assert response.output == [{"role": "assistant", "content": "hello"}]
