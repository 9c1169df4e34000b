"""A faulty endpoint causes typed failures in a collection and nothing worse."""

from __future__ import annotations

import gzip
import sys

import orjson
import pytest
from waiting import until_async

import ludus
from ludus import UserError

ONCE = {"model.retries": 0}


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("hang", "timeout"),
        ("429", "http_429"),
        ("500", "http_500"),
        ("garbage", "bad_response"),
        ("not_a_response", "bad_response"),
        ("half", "disconnected"),
        ("close", "disconnected"),
        ("reset", "disconnected"),
    ],
)
def test_every_fault_of_the_model_is_a_typed_failure_without_a_reward(server, counter, rows, tmp_path, fault, kind):
    settings = {**ONCE, "limits.model": 0.5} if fault == "hang" else ONCE
    result = ludus.collect(
        counter, model=f"{server.url}#{fault}", input=rows(20), output=tmp_path, settings=settings, concurrency=20
    )
    counts = result.metrics["counts"]
    assert counts == {"dispatched": 20, "completed": 0, "failed": 20, "masked": 0}
    lines = [orjson.loads(line) for line in (tmp_path / "failures.jsonl").read_bytes().splitlines()]
    assert {(line["stage"], line["kind"]) for line in lines} == {("model", kind)}
    assert all("reward" not in line and line["cause"] and line["attempt"] == 1 for line in lines)
    assert (tmp_path / "rollouts.jsonl").read_bytes() == b""


def test_counts_add_up_after_a_mixture_of_faults(server, counter, rows):
    server.faults = ["hang", "429", "ok", "500", "garbage", "half", "close", "reset", "not_a_response", "ok"] * 6
    settings = {**ONCE, "limits.model": 2.0}
    result = ludus.collect(counter, model=f"{server.url}#m", input=rows(60), settings=settings, concurrency=16)
    counts = result.metrics["counts"]
    assert counts["completed"] + counts["failed"] + counts["masked"] == counts["dispatched"] == 60
    assert counts["completed"] > 0
    assert counts["failed"] > 0
    assert all((rollout.reward is None) == (rollout.error is not None) for rollout in result.rollouts)


@pytest.mark.parametrize("fault", ["close", "reset"])
def test_a_connection_dropped_before_the_answer_is_retried(server, counter, rows, fault):
    server.faults = [fault, "ok", fault, fault, "ok"]
    result = ludus.collect(counter, model=f"{server.url}#m", input=rows(1), settings=ONCE)
    assert result.metrics["counts"]["completed"] == 1
    assert server.seen[fault] == 3


def test_a_connection_that_the_server_closed_while_idle_is_retried(server, counter, rows):
    class Slow(counter):
        async def call(self, name: str, arguments: str) -> str:
            await until_async(lambda: server.closed == server.connections)
            return await super().call(name, arguments)

    server.idle_timeout = 0.1
    result = ludus.collect(Slow, model=f"{server.url}#m", input=rows(8), settings=ONCE)
    assert result.metrics["counts"]["completed"] == 8
    assert server.connections > 8


def test_a_refused_key_stops_the_run_with_the_message_of_the_provider(server, counter, rows, monkeypatch, tmp_path):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret")
    with pytest.raises(UserError, match="401 to the key in OPENAI_API_KEY: Incorrect API key provided") as caught:
        ludus.collect(counter, model=f"{server.url}#401", input=rows(500), output=tmp_path, concurrency=4)
    assert "secret" not in str(caught.value)
    assert sum(server.seen.values()) < 50
    assert orjson.loads((tmp_path / "metrics.json").read_bytes())["counts"]["failed"] >= 8
    for file in tmp_path.iterdir():
        assert b"very-secret" not in file.read_bytes()


def test_an_unreachable_url_stops_the_run_and_is_named_in_the_error(counter, rows):
    with pytest.raises(UserError, match=r"cannot reach http://127\.0\.0\.1:9"):
        ludus.collect(counter, model="http://127.0.0.1:9/v1#m", input=rows(100))


def test_auto_falls_back_to_chat_after_one_request_to_responses(server, counter, rows):
    import servers

    server.routes = {"/v1/chat/completions"}

    def chat(body):
        called = any(each["role"] == "tool" for each in body["messages"])
        calls = [
            {"id": "c1", "type": "function", "function": {"name": "increment_counter", "arguments": '{"count": 1}'}}
        ]
        message = {"content": "done"} if called else {"content": None, "tool_calls": calls}
        usage = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
        return {"id": "x", "choices": [{"message": message, "finish_reason": "stop"}], "usage": usage}

    original, servers.answer = servers.answer, chat
    try:
        result = ludus.collect(counter, model=f"{server.url}#m", input=rows(3), concurrency=1)
    finally:
        servers.answer = original
    assert result.metrics["reward"]["mean"] == 1.0
    assert result.metrics["usage"]["output_tokens"] == 12
    assert sum("input" in body for body in server.bodies) == 1  # Responses was tried once


def test_retry_after_is_honoured_and_costs_no_attempt(server, counter, rows):
    server.faults = ["429", "503"]
    result = ludus.collect(counter, model=f"{server.url}#m", input=rows(1), settings={"model.retries": 3})
    assert result.metrics["counts"]["completed"] == 1


@pytest.mark.parametrize("http", ["lean", "aiohttp"])
def test_an_answer_that_decompresses_to_too_many_bytes_is_a_failure(server, counter, rows, http):
    bomb = gzip.compress(bytes(30_000_000))

    async def respond(path, body, writer):
        head = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(bomb)
        writer.write(head + bomb)
        await writer.drain()
        return True

    server.respond = respond
    settings = {"model.http": http, "model.max_reply_bytes": 1_000_000}
    result = ludus.collect(counter, model=f"{server.url}#m", input=rows(4), settings=settings)
    assert result.metrics["counts"] == {"dispatched": 4, "completed": 0, "failed": 4, "masked": 0}
    (cause,) = {(rollout.error.stage, rollout.error.kind, rollout.error.cause) for rollout in result.rollouts}
    assert cause == ("model", "too_large", "the reply is larger than 1,000,000 bytes")
    assert server.connections == 4, "a bomb is not asked for again"


@pytest.mark.parametrize("needs", ["model.http", "a proxy behind TLS"])
def test_without_aiohttp_what_needs_it_is_refused_with_the_pip_command(counter, rows, needs, monkeypatch):
    monkeypatch.setitem(sys.modules, "aiohttp", None)
    if needs == "a proxy behind TLS":
        monkeypatch.setenv("HTTP_PROXY", "https://proxy.example:3128")
    settings = {"model.http": "aiohttp"} if needs == "model.http" else {}
    with pytest.raises(UserError, match=r"^aiohttp, which .*needs, is not installed. Install it with: .*\[aiohttp\]'$"):
        ludus.collect(counter, model="http://model.example/v1#m", input=rows(1), settings=settings)


def test_aiohttp_can_be_chosen_as_the_client(server, counter, rows):
    result = ludus.collect(counter, model=f"{server.url}#m", input=rows(2), settings={"model.http": "aiohttp"})
    assert result.metrics["counts"]["completed"] == 2
    assert b"ludus/" in server.headers[0]
