"""An environment's tools over MCP, called with the official SDK's client."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import forked
import lazily
import pytest
from serving import COUNTER, COUNTER_ROW, Web, served, url_of

from ludus import Environment
from ludus.data.rows import Rows
from ludus.serve.serving import Serving

lazily.needs("mcp", "pip install 'ludus-gym[mcp]'")
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture(scope="module")
def serving() -> Iterator[Serving]:
    with served(COUNTER, resources_only=True, mcp=True) as running:
        yield running


async def talk(serving: Serving, token: str | None, *calls: tuple[str, dict[str, Any]]) -> tuple[list[str], list[Any]]:
    import httpx2
    from mcp.client.session import ClientSession
    from mcp.client.streamable_http import streamable_http_client

    headers = {"X-NeMo-Gym-Session-Token": token} if token else {}
    async with (
        httpx2.AsyncClient(headers=headers) as http,
        streamable_http_client(f"{url_of(serving, COUNTER)}/mcp", http_client=http) as streams,
        ClientSession(streams[0], streams[1]) as session,
    ):
        await session.initialize()
        tools = [tool.name for tool in (await session.list_tools()).tools]
        return tools, [await session.call_tool(name, arguments) for name, arguments in calls]


async def test_a_tool_call_runs_in_the_session_of_its_token(serving: Serving):
    web = Web(url_of(serving, COUNTER))
    block = web.post("/seed_session", COUNTER_ROW).json()["mcp"]
    assert (block["url_path"], block["transport"]) == ("/mcp", "http")
    token = block["headers"]["X-NeMo-Gym-Session-Token"]
    tools, results = await talk(
        serving, token, ("increment_counter", {"count": 3}), ("get_counter_value", {}), ("verify", {})
    )
    assert tools == ["increment_counter", "get_counter_value"]
    assert results[1].structured_content == {"count": 4}
    assert results[2].is_error
    assert web.post("/verify", {**COUNTER_ROW, "response": {"output": []}}).json()["reward"] == 1.0


async def test_an_integer_of_any_size_reaches_the_tool(serving: Serving):
    web = Web(url_of(serving, COUNTER))
    token = {"X-NeMo-Gym-Session-Token": web.post("/seed_session", COUNTER_ROW).headers["x-ludus-session"]}
    params = {"name": "increment_counter", "arguments": {"count": 10**30}}
    call = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    reply = web.post("/mcp", call, {"Accept": "application/json, text/event-stream", **token})
    assert reply.json()["result"]["structuredContent"] == {"success": True}


async def test_without_a_token_tools_are_listed_but_calls_fail(serving: Serving):
    tools, results = await talk(serving, None, ("increment_counter", {"count": 3}))
    assert tools == ["increment_counter", "get_counter_value"]
    assert results[0].is_error
    _, wrong = await talk(serving, "0.made-up", ("increment_counter", {"count": 3}))
    assert "over" in wrong[0].content[0].text


async def test_a_row_that_lists_tools_offers_only_those(serving: Serving):
    only = [{"type": "function", "name": "get_counter_value", "parameters": {"type": "object", "properties": {}}}]
    row = {**COUNTER_ROW, "responses_create_params": {"input": "x", "tools": only}}
    block = Web(url_of(serving, COUNTER)).post("/seed_session", row).json()["mcp"]
    tools, results = await talk(
        serving, block["headers"]["X-NeMo-Gym-Session-Token"], ("increment_counter", {"count": 3})
    )
    assert tools == ["get_counter_value"]
    assert results[0].is_error


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A program that does what `ludus` does."""
    path = tmp_path_factory.mktemp("programs") / "ludus"
    forked.write_program(path)
    return str(path)


@asynccontextmanager
async def stdio_session(program: str, *options: str) -> AsyncIterator[Any]:
    """An MCP client of `ludus serve --mcp --stdio`."""
    from mcp.client.session import ClientSession
    from mcp.client.stdio import StdioServerParameters, stdio_client

    words = ["serve", COUNTER, "--mcp", "--stdio", *options]
    async with (
        stdio_client(StdioServerParameters(command=program, args=words, env=dict(os.environ))) as streams,
        ClientSession(streams[0], streams[1]) as session,
    ):
        await session.initialize()
        yield session


async def test_stdio_calls_share_one_session(program: str):
    async with stdio_session(program) as session:
        before: Any = await session.call_tool("get_counter_value", {})
        await session.call_tool("increment_counter", {"count": 2})
        after: Any = await session.call_tool("get_counter_value", {})
    assert after.structured_content["count"] == before.structured_content["count"] + 2


@pytest.mark.parametrize(("options", "number"), [([], 1), (["--row", "1"], 1), (["--row", "2"], 2)])
async def test_rows_are_counted_from_1_as_in_ludus_chat(program: str, options: list[str], number: int):
    environment = Environment.load(COUNTER)
    rows = [row for _, row, _ in Rows(environment.rows(None), environment.task)]
    assert rows[0]["initial_count"] != rows[1]["initial_count"]
    async with stdio_session(program, *options) as session:
        count: Any = await session.call_tool("get_counter_value", {})
    assert count.structured_content["count"] == rows[number - 1]["initial_count"]


@pytest.mark.parametrize("command", [["chat", COUNTER], ["serve", COUNTER, "--mcp", "--stdio"]])
def test_row_0_is_refused_and_the_help_says_that_rows_are_counted_from_1(command: list[str]):
    words = [sys.executable, "-m", "ludus", *command]
    done = forked.run([*words, "--row", "0"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
    assert done.returncode == 2
    shown = forked.run([*words[:4], "--help"], capture_output=True, text=True, timeout=300)
    assert "counted from 1" in " ".join(shown.stdout.split())


@pytest.mark.parametrize("environment", [COUNTER, "example_single_tool_call"])  # with and without an `open`
def test_a_missing_row_is_refused_before_the_first_call(environment: str):
    words = [sys.executable, "-m", "ludus", "serve", environment, "--mcp", "--stdio", "--row", "999"]
    done = forked.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
    assert done.returncode != 0
    assert "has no row 999. Choose --row from 1 to" in " ".join(done.stderr.split())
    assert not done.stdout
