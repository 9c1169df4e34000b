"""Rollouts whose tools are on a real MCP server, over HTTP and over the stdio of a child process."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Iterator
from typing import Any

import lazily
import pytest
from mcp_sessions import ROW, STDIO, Sum, opened, outputs, play, served

import ludus
from ludus import Response, ScriptedModel, UserError, tool
from ludus.errors import Failure
from ludus.integrations.mcp_servers import HttpServer, McpServer

lazily.needs("mcp", "pip install 'ludus-gym[mcp]'")


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with served() as (address, _):
        yield address


@pytest.fixture(scope="module", params=["http", "json", "stdio"])
def settings(request: pytest.FixtureRequest, url: str) -> Iterator[dict[str, Any]]:
    if request.param == "stdio":
        yield STDIO
    elif request.param == "http":
        yield {"url": url}
    else:
        with served("--json") as (address, _):
            yield {"url": address}


def test_a_rollout_lists_the_servers_tools_calls_one_and_gets_a_reward(settings: dict[str, Any]) -> None:
    seen: list[Any] = []

    def model(request: ludus.Request) -> Any:
        seen.append(request.params["tools"])
        if request.turn == 0:
            return {"call": "add", "arguments": {"a": 2, "b": 3}}
        return request.input[-1]["output"]

    given = {f"resources.{key}": value for key, value in settings.items()}
    [rollout] = ludus.collect(Sum, model=ScriptedModel(model), input=[ROW], settings=given).rollouts
    assert (rollout.reward, rollout.error) == (1.0, None)
    add = next(entry for entry in seen[0] if entry["name"] == "add")
    assert add["description"] == "Add two numbers."
    assert set(add["parameters"]["properties"]) == {"a", "b"}
    assert add["strict"] is False


async def test_a_result_of_any_content_type_becomes_text(settings: dict[str, Any]) -> None:
    async with opened(settings) as session:
        read = {
            kind: await session.call("parts", json.dumps({"kind": kind}))
            for kind in "several structured both pictured embedded nothing error".split()
        }
    assert read == {
        "several": "first\n[image, image/png, 8 bytes]\nsecond",
        "structured": '{"weather":"sunny","degrees":21}',
        "both": "first",
        "pictured": '{"seen":true}\n[image, image/png, 8 bytes]',
        "embedded": "embedded",
        "nothing": "",
        "error": '{"error":"no such city"}',
    }


async def test_a_large_result_arrives_whole(settings: dict[str, Any]) -> None:
    from mcp.client.streamable_http import streamable_http_client

    if "max_sse_event_size" not in inspect.signature(streamable_http_client).parameters:
        pytest.skip("this version of the SDK takes no result above 1 MiB")
    async with opened(settings) as session:
        assert await session.call("parts", '{"kind": "large"}') == "x" * 2_000_000


async def test_a_wrong_call_returns_an_error_to_the_model_and_the_session_continues(settings: dict[str, Any]) -> None:
    async with opened(settings) as session:
        for arguments in ("not JSON", "[1, 2]", "3", '{"a": 1', '{"a": "x", "b": 2}', "{}", '{"a": NaN}', '"\\ud800"'):
            assert "error" in json.loads(await session.call("add", arguments)), arguments
        assert "break_down" in json.loads(await session.call("break_down", '{"why": "because"}'))["error"]
        assert await session.call("no_such_tool", "{}") == '{"detail":"Not Found"}'
        assert await session.call("process_id", "") != ""
        assert await session.call("add", '{"a": 2, "b": 3}') == "5"


async def test_hostile_arguments_return_an_error_and_the_session_continues(url: str) -> None:
    deep = '{"why": ' + "[" * 5000 + "]" * 5000 + "}"
    async with opened({"url": url}) as session:
        for arguments in (deep, json.dumps({"why": "\r\nX-Injected: 1\x00"}), json.dumps({"why": "x" * 300_000})):
            assert "error" in json.loads(await session.call("break_down", arguments))
        assert await session.call("add", '{"a": 2, "b": 3}') == "5"


async def test_concurrent_calls_each_get_their_own_answer(settings: dict[str, Any]) -> None:
    async with opened(settings) as session:
        sleeps = [{"seconds": 0.3 - 0.05 * number, "text": f"answer {number}"} for number in range(5)]
        answers = await asyncio.gather(*(session.call("sleep_then_say", json.dumps(each)) for each in sleeps))
    assert answers == [f"answer {number}" for number in range(5)]


async def test_concurrent_sessions_do_not_share_state(url: str) -> None:
    async def write(number: int) -> str:
        async with opened({"url": url}) as session:
            for text in (f"{number}a", f"{number}b"):
                written: str = await session.call("note", json.dumps({"text": text}))
            return written

    assert await asyncio.gather(*map(write, range(12))) == [f"{number}a,{number}b" for number in range(12)]


def test_a_row_that_lists_tools_offers_only_the_listed_tools(url: str) -> None:
    row = {**ROW, "responses_create_params": {"input": "Add.", "tools": [{"type": "function", "name": "add"}]}}
    calls = [{"name": "process_id"}, {"name": "add", "arguments": {"a": 2, "b": 3}}]
    rollout = play({"url": url}, {"calls": calls}, "5", row=row)
    assert outputs(rollout) == ['{"detail":"Not Found"}', "5"]


async def test_a_dot_in_a_tool_name_becomes_an_underscore(url: str) -> None:
    async with opened({"url": url}) as session:
        names = {entry["name"] for entry in session.tools()}
        assert "files_read" in names
        assert "files.read" not in names
        assert await session.call("files_read", "{}") == "contents"
        assert await session.call("files.read", "{}") == '{"detail":"Not Found"}'


async def test_a_duplicate_tool_name_fails_the_rollout_on_open(url: str) -> None:
    class Clash(Sum):
        @tool
        async def add(self) -> str:
            """The same name as a tool of the server."""
            return ""

    with pytest.raises(Failure, match="add") as raised:
        async with opened({"url": url}, kind=Clash):
            pass
    assert raised.value.kind == "bad_tools"


async def test_the_verifier_can_call_tools_that_are_hidden_from_the_model(url: str) -> None:
    class Audited(Sum):
        @tool
        async def give_up(self) -> str:
            """A tool of this class."""
            return "given up"

        def tools(self) -> list[dict[str, Any]]:
            return [entry for entry in super().tools() if entry["name"] in ("give_up", "note")]

        async def verify(self, task: Any, response: Response) -> float:
            result = await self.call_server("note", {"text": "audit"})
            return float(result.content[0].text == "hello,audit")  # type: ignore[union-attr]

    calls = [{"name": name, "arguments": {"text": "hello"} if name == "note" else {}} for name in ("note", "give_up")]
    turns = [{"calls": [*calls, {"name": "process_id"}]}, "Done."]
    settings = {"resources.url": url}
    result = await ludus.collect_async(Audited, model=ScriptedModel(turns), input=[ROW], settings=settings)
    [rollout] = result.rollouts
    assert rollout.reward == 1.0
    assert outputs(rollout) == ["hello", "given up", '{"detail":"Not Found"}']


async def test_each_rollout_can_send_its_own_header(url: str) -> None:
    class Seeded(Sum):
        async def servers(self, task: Any) -> dict[str, McpServer]:
            shared = self.shared
            assert isinstance(shared, HttpServer)
            return {"": HttpServer(shared.url, shared.name, {"X-Token": task.expected}, tls=shared.tls)}

    async with opened({"url": url}, kind=Seeded) as session:
        assert await session.call("header", '{"name": "X-Token"}') == "5"


async def test_a_rollout_can_use_several_servers(url: str) -> None:
    class Two(Sum):
        async def servers(self, task: Any) -> dict[str, McpServer]:
            return {"first_": self.shared, "second_": self.shared}

    async with opened({"url": url}, kind=Two) as session:
        assert await session.call("first_note", '{"text": "a"}') == "a"
        assert await session.call("second_note", '{"text": "b"}') == "b"
        assert await session.call("first_note", '{"text": "c"}') == "a,c"
        assert await session.call("note", '{"text": "d"}') == '{"detail":"Not Found"}'


async def test_a_key_named_in_settings_is_sent_to_the_server_and_redacted_from_results(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEATHER_KEY", "s3cret-value")
    settings = {"url": url, "headers": {"X-Key": "Bearer ${WEATHER_KEY}", "X-Plain": "$5 {not a key}"}}
    async with opened(settings) as session:
        result = await session.call_server("header", {"name": "X-Key"})
        assert result.content[0].text == "Bearer s3cret-value"
        assert await session.call("header", '{"name": "X-Key"}') == "Bearer ***"
        assert await session.call("header", '{"name": "X-Plain"}') == "$5 {not a key}"
        assert "s3cret" not in session.config.model_dump_json()


async def test_a_child_process_gets_only_the_environment_variables_in_env(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEATHER_KEY", "s3cret-value")
    async with opened({**STDIO, "env": {"PASSED_ON": "${WEATHER_KEY}"}}) as session:
        assert await session.call("variable", '{"name": "WEATHER_KEY"}') == "none"
        assert await session.call("variable", '{"name": "PASSED_ON"}') == "***"


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({}, "neither"),
        ({"url": "http://127.0.0.1:1/mcp", "command": ["true"]}, "both"),
        ({"url": "ftp://127.0.0.1/mcp"}, "must begin with http"),
        ({"url": "http://127.0.0.1:1/mcp", "headers": {"A": "${NO_SUCH_KEY}"}}, "NO_SUCH_KEY"),
    ],
)
def test_settings_without_exactly_one_valid_server_raise_a_user_error(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UserError, match=complaint):
        play(settings, "5")


def test_a_row_cannot_name_a_server_or_a_program(url: str) -> None:
    row = {**ROW, "url": "http://127.0.0.1:1/mcp", "command": ["touch", "owned"], "settings": {"command": ["x"]}}
    assert play({"url": url}, "5", row=row).reward == 1.0
