"""Models behind endpoints: several endpoints, failing ones, retries, Azure, vLLM, recordings and secret keys."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from contextlib import ExitStack

import forked
import orjson
import pytest
from servers import Server, running
from waiting import CEILING, until, until_async

import ludus
from ludus import ScriptedModel, UserError
from ludus.model import Request
from ludus.models import open_model


def block(servers: list[Server], **more) -> dict:
    return {"type": "openai", "model": "m", "base_url": [server.url for server in servers], **more}


def test_rollouts_are_spread_over_endpoints_and_each_keeps_its_endpoint(counter, rows):
    arrived: list[dict] = []

    class Patient(Server):
        """Answers when all rollouts have asked, so that none of the servers is the fastest."""

        async def respond(self, path, body, writer):
            arrived.append(body)
            await until_async(lambda: len(arrived) >= 60)
            return await super().respond(path, body, writer)

    with ExitStack() as stack:
        servers = [stack.enter_context(running(Patient())) for _ in range(3)]
        result = ludus.collect(counter, model=open_model(block(servers)), input=rows(60), concurrency=60)
        assert result.metrics["counts"]["completed"] == 60
        asked = [{body["input"][0]["content"] for body in server.bodies} for server in servers]
        assert all(len(questions) >= 10 for questions in asked)
        assert sum(map(len, asked)) == 60, "no rollout was served by two endpoints"
        endpoints = result.metrics["model"]["endpoints"]
        assert sum(endpoint["served"] for endpoint in endpoints) == 120
        assert all(endpoint["outstanding"] == 0 for endpoint in endpoints)


def test_no_rollout_fails_while_one_endpoint_is_reachable(counter, rows):
    with ExitStack() as stack:
        lives = stack.enter_context(running(Server()))
        dies = ExitStack()
        dead = dies.enter_context(running(Server()))
        waiting, killed = [], threading.Event()

        class Slow(counter):
            async def call(self, name: str, arguments: str) -> str:
                waiting.append(self)
                await until_async(killed.is_set)
                return await super().call(name, arguments)

        def kill_one() -> None:
            until(lambda: len(dead.bodies) >= 10 or len(waiting) == 20)
            dies.close()
            killed.set()

        killer = threading.Thread(target=kill_one, daemon=True)
        killer.start()
        model = open_model(block([lives, dead], retries=0))
        result = ludus.collect(Slow, model=model, input=rows(200), concurrency=20)
        killer.join()
        assert result.metrics["counts"] == {"dispatched": 200, "completed": 200, "failed": 0, "masked": 0}
        assert [endpoint["resting"] for endpoint in result.metrics["model"]["endpoints"]] == [False, True]


def test_a_prompt_that_is_too_long_is_an_incomplete_response(server, counter, rows):
    import servers

    async def too_long(path, body, writer):
        text = b'{"error": {"message": "This model\'s maximum context length is 4096 tokens"}}'
        return await servers.send(writer, 400, text)

    server.respond = too_long
    result = ludus.collect(counter, model=f"{server.url}#m", input=rows(3, expected_count=0))
    assert result.metrics["counts"]["completed"] == 3
    assert {rollout.stop_reason for rollout in result.rollouts} == {"max_output_tokens"}


def test_a_pause_past_the_deadline_is_not_started_and_the_failure_is_not_a_timeout(server, counter, rows):
    settings = {"limits.model": CEILING, "model.retries": {"busy": 50, "first_pause": 3600, "longest_pause": 3600}}
    result = ludus.collect(counter, model=f"{server.url}#529", input=rows(2), settings=settings)
    assert len(server.bodies) == 2, "it was not tried again"
    assert {rollout.error.kind for rollout in result.rollouts} == {"http_529"}


def test_a_background_request_is_not_retried_after_a_partial_answer(server, counter, rows):
    server.faults = ["half"]
    row = rows(1)[0]
    row["responses_create_params"]["background"] = True
    result = ludus.collect(counter, model=f"{server.url}#m", input=[row])
    assert result.rollouts[0].error.kind == "disconnected"
    assert len(server.bodies) == 1


def test_a_partial_answer_is_retried(server, counter, rows):
    server.faults = ["half", "ok", "half"]
    result = ludus.collect(counter, model=f"{server.url}#m", input=rows(1))
    assert result.metrics["counts"]["completed"] == 1
    assert result.metrics["model"]["retries"] == {"dropped": 2}


@pytest.mark.parametrize("length", [10, 2_000_000])
def test_small_and_large_requests_arrive_complete_and_as_json(server, counter, rows, length):
    row = rows(1)[0]
    row["responses_create_params"]["input"] = [{"role": "user", "content": "x" * length}]
    result = ludus.collect(counter, model=f"{server.url}#m", input=[row])
    assert result.metrics["counts"]["completed"] == 1
    assert server.bodies[0]["input"] == row["responses_create_params"]["input"]
    types = [line for head in server.headers for line in head.splitlines() if line.lower().startswith(b"content-type")]
    assert [line.lower() for line in types] == [b"content-type: application/json"] * 2


def test_a_content_type_in_the_settings_is_sent(server, counter, rows):
    named = {"model.headers": {"content-type": "application/json; charset=utf-8"}}
    ludus.collect(counter, model=f"{server.url}#m", input=rows(1), settings=named)
    assert b"content-type: application/json; charset=utf-8\r\n" in server.headers[0]
    assert server.headers[0].lower().count(b"content-type") == 1


@pytest.mark.parametrize("framing", [b"content-length: %d", b"transfer-encoding: chunked"])
@pytest.mark.parametrize("pieces", [1, 2, 5])
def test_an_answer_in_any_number_of_chunks_is_read_completely_and_its_connection_reused(
    server, counter, rows, framing, pieces
):
    import servers

    chunked = b"chunked" in framing

    async def in_pieces(path, body, writer):
        data = orjson.dumps(servers.answer(body))
        size = -(-len(data) // pieces)
        writer.write(b"HTTP/1.1 200 OK\r\n%s\r\n\r\n" % (framing if chunked else framing % len(data)))
        for start in range(0, len(data), size):
            piece = data[start : start + size]
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece) if chunked else piece)
            if pieces > 1:
                await writer.drain()
                await asyncio.sleep(0.005)
        writer.write(b"0\r\n\r\n" if chunked else b"")
        await writer.drain()
        return True

    server.respond = in_pieces
    result = ludus.collect(counter, model=f"{server.url}#m", input=rows(4), concurrency=1)
    assert result.metrics["counts"]["completed"] == 4
    assert {rollout.response.output_text for rollout in result.rollouts} == {"done"}
    assert server.connections == 1


def test_auto_concurrency_backs_off_from_a_busy_server(server, counter, rows):
    import servers

    busy = 0

    async def limited(path, body, writer):
        nonlocal busy
        if busy >= 6:
            return await servers.send(writer, 429, b'{"error": {"message": "slow down"}}')
        busy += 1
        await asyncio.sleep(0.01)
        busy -= 1
        return await servers.send(writer, 200, orjson.dumps(servers.answer(body)))

    server.respond = limited

    def refusals(concurrency) -> int:
        settings = {"model.retries": {"busy": 10_000, "first_pause": 0.01}}
        result = ludus.collect(
            counter, model=f"{server.url}#m", input=rows(200), concurrency=concurrency, settings=settings
        )
        assert result.metrics["counts"]["completed"] == 200
        return result.metrics["model"]["retries"]["http_429"]

    assert refusals("auto") < refusals(64) / 3


def test_concurrency_above_the_limit_of_open_files_is_refused_before_the_run(server, counter, rows):
    with pytest.raises(UserError, match=r"need \d+ open files and this system allows \d+. Use --concurrency \d+"):
        ludus.collect(counter, model=f"{server.url}#m", input=rows(1), repeats=10_000_000, concurrency=10_000_000)


def test_azure_has_its_own_urls_and_key_header(server, counter, rows, monkeypatch):
    base = server.url.removesuffix("/v1")
    monkeypatch.setenv("AZURE_OPENAI_ENDPOINT", base)
    monkeypatch.setenv("AZURE_OPENAI_API_KEY", "azure-secret")
    server.routes = {"/openai/responses?api-version=2025-04-01-preview"}
    result = ludus.collect(counter, model="azure:my-deployment", input=rows(2))
    assert result.metrics["counts"]["completed"] == 2
    assert b"api-key: azure-secret" in server.headers[0]
    monkeypatch.delenv("AZURE_OPENAI_API_KEY")
    monkeypatch.setenv("AZURE_OPENAI_AD_TOKEN", "entra")
    ludus.collect(counter, model="azure:my-deployment", input=rows(1))
    assert b"Authorization: Bearer entra" in server.headers[-1]
    monkeypatch.delenv("AZURE_OPENAI_AD_TOKEN")
    with pytest.raises(UserError, match="needs a key. Set AZURE_OPENAI_API_KEY or AZURE_OPENAI_AD_TOKEN"):
        open_model("azure:my-deployment")


async def test_vllm_requests_ask_for_tokens_and_send_template_arguments_and_prefixes():
    from ludus.tokens import Tokens

    settings = {"prefix": "field", "chat_template_kwargs": {"enable_thinking": False}, "extra_body": {"top_k": -1}}
    model = open_model("vllm:http://127.0.0.1:1/v1#m", settings)
    model.capture_tokens = True
    metadata = {"extra_body": '{"min_p": 0.1}', "chat_template_kwargs": '{"x": 1}'}
    items = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "ho"},
        {"role": "user", "content": "hm"},
    ]
    request = Request(items, metadata=metadata, tokens=Tokens([1, 2], [3], [-0.1]))
    body = model._chat_body(request)
    assert body["return_token_ids"] is body["logprobs"] is True
    assert (body["top_k"], body["min_p"], body["top_logprobs"]) == (-1, 0.1, 0)
    assert body["chat_template_kwargs"] == {"enable_thinking": False, "x": 1}
    assert body["required_prefix_token_ids"] == [1, 2, 3]
    model.config.prefix = "message"
    body = model._chat_body(request)
    assert body["messages"][1]["generation_token_ids"] == [3]
    assert "required_prefix_token_ids" not in body


def test_a_replay_gives_the_recorded_items_and_fails_for_missing_rollouts(counter, rows, tmp_path):
    script = [{"calls": [{"name": "increment_counter", "arguments": {"count": 1}}] * 2, "text": "working"}, "done"]
    first = ludus.collect(counter, model=ScriptedModel(script), input=rows(5), repeats=2, output=tmp_path / "a")
    again = ludus.collect(counter, model=f"replay:{tmp_path / 'a'}", input=rows(5), repeats=2, output=tmp_path / "b")

    def content(collection):
        return sorted((rollout.rollout_id, orjson.dumps(rollout.response.output)) for rollout in collection)

    assert content(first) == content(again)
    missing = ludus.collect(counter, model=f"replay:{tmp_path / 'a'}", input=rows(6))
    assert missing.metrics["failures"] == {"model/no_recording": 1}
    with pytest.raises(UserError, match="cannot read"):
        open_model("replay:/nowhere")


def test_a_key_in_env_yaml_is_sent_and_never_printed_or_recorded(server, counter, rows, tmp_path, monkeypatch):
    (tmp_path / "env.yaml").write_text("OPENAI_API_KEY: sk-from-a-file\n")
    (tmp_path / "rows.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows(3)))
    environment = {key: value for key, value in os.environ.items() if key != "OPENAI_API_KEY"}
    words = ["collect", "example_single_tool_call", "-i", "rows.jsonl", "-o", "out", "--model", f"{server.url}#m"]
    done = forked.run(
        [sys.executable, "-m", "ludus", *words], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert b"Authorization: Bearer sk-from-a-file" in server.headers[0]
    everything = done.stdout + done.stderr + "".join(path.read_text() for path in (tmp_path / "out").iterdir())
    assert "sk-from-a-file" not in everything


def test_a_key_quoted_by_the_provider_is_masked_in_the_failure(server, counter, rows, monkeypatch):
    import servers

    async def echo(path, body, writer):
        return await servers.send(writer, 400, b'{"error": {"message": "bad key sk-quoted-by-provider!"}}')

    server.respond = echo
    monkeypatch.setenv("OPENAI_API_KEY", "sk-quoted-by-provider")
    result = ludus.collect(counter, model=f"{server.url}#m", input=rows(1))
    assert result.rollouts[0].error.cause.endswith("bad key ***!")


@pytest.mark.parametrize("said", ["The key is wrong", "The key is wrong."])
def test_a_refused_key_is_told_in_two_sentences_whether_or_not_the_provider_ends_its_own(
    server, counter, rows, said, monkeypatch
):
    import servers

    async def refuse(path, body, writer):
        return await servers.send(writer, 401, orjson.dumps({"error": {"message": said}}))

    server.respond = refuse
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    without = r"answered 401 to a request without a key \(OPENAI_API_KEY is not set\): The key is wrong\. Check the key"
    with pytest.raises(UserError, match=without):
        ludus.collect(counter, model=f"{server.url}#m", input=rows(1))
    settings = {"model.headers": {"x-key": "mine-is-wrong"}}
    with pytest.raises(UserError, match="answered 401 to the headers of the settings: The key is wrong"):
        ludus.collect(counter, model=f"{server.url}#m", input=rows(1), settings=settings)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-wrong-key")
    with pytest.raises(UserError, match=r"answered 401 to the key in OPENAI_API_KEY: The key is wrong\. Check the key"):
        ludus.collect(counter, model=f"{server.url}#m", input=rows(1))


def test_a_yaml_file_selects_a_model(tmp_path, server, counter, rows):
    path = tmp_path / "policy.yaml"
    path.write_text(f"type: openai\nmodel: m\nbase_url: [{server.url}]\nretries: {{busy: 1}}\n")
    assert ludus.collect(counter, model=str(path), input=rows(2)).metrics["counts"]["completed"] == 2
    path.write_text("type: opnai\nmodel: m\n")
    with pytest.raises(UserError, match="unknown type opnai. Did you mean openai?"):
        open_model(str(path))
    path.write_text("type: openai\nmodel: m\ntemprature: 1\n")
    with pytest.raises(UserError, match="model has no setting temprature. Did you mean temperature?"):
        open_model(str(path))


def test_the_time_to_connect_is_counted_separately(server, counter, rows):
    result = ludus.collect(counter, model=f"{server.url}#m", input=rows(10), concurrency=10)
    assert result.metrics["model"]["connect_seconds"] > 0
    assert result.metrics["seconds"]["connect"]["count"] == 10


def test_with_tokens_requested_a_rollout_without_token_ids_is_masked_with_a_reason(counter, rows):
    result = ludus.collect(counter, model=ScriptedModel(["done"]), input=rows(3), tokens=True)
    assert result.metrics["counts"] == {"dispatched": 3, "completed": 0, "failed": 0, "masked": 3}
    assert result.rollouts[0].to_row()["mask"] == "no token ids for model call 1"


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_a_streamed_answer_equals_the_whole_answer(server, counter, rows, api):
    import servers

    from ludus.dialects.chat import answer_to_chat
    from ludus.dialects.chat_stream import chat_chunks
    from ludus.dialects.responses_stream import response_events
    from ludus.dialects.sse import DONE, encode_event

    def answer(body):
        outputs = str(body).count("'role': 'tool'") + str(body).count("function_call_output")
        whole = {**servers.answer({"input": [{"type": "function_call_output"}] * bool(outputs)}), "model": "m"}
        return answer_to_chat(whole) if api == "chat" else whole

    async def stream(path, body, writer):
        assert body["stream"] is True
        events = chat_chunks(answer(body)) if api == "chat" else response_events(answer(body))
        end = f"data: {DONE}\n\n".encode() if api == "chat" else b""
        return await servers.send(writer, 200, b"".join(encode_event(event) for event in events) + end)

    server.respond = stream
    settings = {"model.api": api, "model.stream": True}
    result = ludus.collect(counter, model=f"{server.url}#m", input=rows(2), settings=settings)
    assert result.metrics["reward"]["mean"] == 1.0, result.rollouts[0].error
    assert result.rollouts[0].response.output_text == "done"
    assert result.metrics["usage"]["output_tokens"] == 12


def test_fields_that_chat_cannot_hold_are_counted_in_the_metrics(server, counter, rows):
    row = rows(1)[0]
    row["responses_create_params"]["truncation"] = "auto"
    server.routes = {"/v1/chat/completions"}
    result = ludus.collect(counter, model=f"{server.url}#m", input=[row], settings={"model.api": "chat"})
    assert any("truncation" in entry for entry in result.metrics["model"]["lost"])


async def test_stream_yields_any_answer_as_events():
    from ludus.models.streaming import stream

    model = ScriptedModel([{"text": "hello", "reasoning": "hm"}])
    kinds = [event["type"] async for event in stream(model, Request("hi"))]
    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.completed"
    assert "response.output_text.delta" in kinds
