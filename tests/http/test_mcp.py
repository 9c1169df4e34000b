"""The part of MCP that serves tools: every message gets an answer of the protocol, or is refused."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from conversations import json_objects
from hypothesis import given
from hypothesis import strategies as st

from ludus.http.mcp import VERSIONS, mcp_reply
from ludus.http.messages import Incoming, Refusal, Reply

TOOLS = [{"type": "function", "name": "add", "description": "Adds.", "parameters": {"type": "object"}}]


def asked(message: Any) -> Reply:
    async def call(name: str, arguments: str) -> str:
        return json.dumps({"name": name, "arguments": json.loads(arguments)})

    async def receive() -> Any:
        raise AssertionError("the body is there")

    incoming = Incoming({"headers": []}, receive, "POST", "/mcp")
    incoming.body = json.dumps(message).encode()
    return asyncio.run(mcp_reply(incoming, TOOLS, call))


def result(method: str, **params: Any) -> Any:
    answer = json.loads(asked({"jsonrpc": "2.0", "id": 7, "method": method, "params": params}).body)
    assert (answer["jsonrpc"], answer["id"]) == ("2.0", 7)
    return answer.get("result") or answer.get("error")


@pytest.mark.parametrize(("version", "answered"), [(VERSIONS[-1], VERSIONS[-1]), ("1999-01-01", VERSIONS[0])])
def test_a_version_that_is_not_known_gets_the_newest(version: str, answered: str) -> None:
    assert result("initialize", protocolVersion=version)["protocolVersion"] == answered


def test_tools_are_listed_and_called() -> None:
    listed = {"name": "add", "description": "Adds.", "inputSchema": {"type": "object"}}
    assert result("tools/list") == {"tools": [listed]}
    called = result("tools/call", name="add", arguments={"a": 1})
    assert called["structuredContent"] == {"name": "add", "arguments": {"a": 1}}
    assert json.loads(called["content"][0]["text"]) == called["structuredContent"]
    assert asked({"jsonrpc": "2.0", "method": "notifications/initialized"}).status == 202


@given(st.sampled_from(["tools/call", "tools/list", "initialize", "other"]), json_objects)
def test_whatever_the_parameters_are_there_is_one_answer(method: str, params: Any) -> None:
    assert result(method, **{str(key): value for key, value in params.items()})


@given(json_objects)
def test_an_object_that_is_no_message_is_refused(message: Any) -> None:
    message.pop("method", None)
    with pytest.raises(Refusal):
        asked(message)
