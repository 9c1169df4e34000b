"""Tools of a resources server over MCP: a client lists them, and calls them in the session of its token."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any
from unittest.mock import MagicMock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

pytest.importorskip("fastapi", reason="needs FastAPI: pip install 'ludus-nemo-gym[servers]'")

from fastapi import FastAPI, HTTPException, Request
from fastapi.testclient import TestClient
from nemo_gym.base_resources_server import (
    NEMO_GYM_MCP_METADATA_KEY,
    NEMO_GYM_MCP_SESSION_TOKEN_HEADER,
    BaseResourcesServerConfig,
    BaseSeedSessionRequest,
    BaseSeedSessionResponse,
    BaseVerifyRequest,
    BaseVerifyResponse,
    ResourcesSeedSessionRequest,
    ResourcesSeedSessionResponse,
    SimpleResourcesServer,
)
from nemo_gym.mcp_auto_exposure import maybe_auto_expose
from nemo_gym.server_utils import SESSION_ID_KEY, ServerClient
from test_nemo_gym_servers import ANSWER, ROW

CALL = {"type": "function_call", "call_id": "c1", "arguments": "{}", "name": "mcp__weather__get_weather"}


class City(BaseModel):
    city: str


class WeatherVerifyResponse(BaseVerifyResponse):
    calls: list[str]
    names: list[str]


class WeatherServer(SimpleResourcesServer):
    """Remembers the cities of each session."""

    config: BaseResourcesServerConfig
    cities: dict[str, list[str]] = {}

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/get_weather")(self.get_weather)
        app.post("/reset")(self.reset)
        app.post("/{tool_name}")(self.any_tool)
        return app

    async def seed_session(  # type: ignore[override]
        self, request: Request, body: ResourcesSeedSessionRequest | BaseSeedSessionRequest
    ) -> ResourcesSeedSessionResponse | BaseSeedSessionResponse:
        self.cities[request.session[SESSION_ID_KEY]] = []
        return await super().seed_session(body)

    async def get_weather(self, request: Request, body: City) -> dict[str, str]:
        """The weather of a city."""
        if body.city == "Atlantis":
            raise HTTPException(404, "no such city")
        if body.city == "Babel":
            raise ZeroDivisionError("no tower")
        self.cities[request.session[SESSION_ID_KEY]].append(body.city)
        return {"weather": f"{body.city} is sunny"}

    async def reset(self, request: Request) -> str:
        self.cities[request.session[SESSION_ID_KEY]].clear()
        return "empty"

    async def any_tool(self, tool_name: str) -> str:
        return f"called {tool_name}"

    def mcp_tools(self, harvested: list[Any], catchall: Any) -> Any:
        email = {"name": "send_email", "description": "Send.", "parameters": {"type": "object"}}
        return [*harvested, replace(catchall, name="find_email"), email]

    def mcp_allowed_tools_for_session(self, seed_body: Any) -> list[str] | None:
        allowed: list[str] | None = seed_body.get("allowed")
        return allowed

    async def verify(self, request: Request, body: BaseVerifyRequest) -> WeatherVerifyResponse:  # type: ignore[override]
        calls = self.cities[request.session[SESSION_ID_KEY]]
        names = [item.name for item in body.response.output if item.type == "function_call"]
        return WeatherVerifyResponse(**body.model_dump(), reward=float(bool(calls)), calls=calls, names=names)


def weather(kind: type[SimpleResourcesServer] = WeatherServer, **settings: Any) -> Any:
    fields = {"host": "127.0.0.1", "port": 1, "entrypoint": "app.py", "name": "weather", "expose_tools_over_mcp": True}
    config = BaseResourcesServerConfig.model_validate({**fields, **settings})
    return kind(config=config, server_client=MagicMock(spec=ServerClient))


def exposed(kind: type[SimpleResourcesServer] = WeatherServer, **settings: Any) -> FastAPI:
    server = weather(kind, **settings)
    app: FastAPI = server.setup_webserver()
    maybe_auto_expose(server, app)
    return app


APP = exposed()


def rpc(client: TestClient, method: str, headers: dict[str, str] | None = None, **params: Any) -> Any:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    reply = client.post("/mcp", json=body, headers={"accept": "application/json, text/event-stream", **(headers or {})})
    assert reply.status_code == 200, reply.text
    return reply.json()["result"]


def call(client: TestClient, headers: dict[str, str], name: str, **arguments: Any) -> tuple[bool, str]:
    result = rpc(client, "tools/call", headers, name=name, arguments=arguments)
    return result["isError"], result["content"][0]["text"]


def test_routes_are_tools_with_the_schema_of_their_body():
    tools = rpc(TestClient(exposed()), "tools/list")["tools"]
    assert [tool["name"] for tool in tools] == ["get_weather", "reset", "find_email", "send_email"]
    assert tools[0]["description"] == "The weather of a city."
    assert tools[0]["inputSchema"]["required"] == ["city"]


def test_a_call_runs_in_the_session_of_its_token_and_verify_sees_bare_names():
    app = exposed()
    policy, agent = TestClient(app), TestClient(app)
    metadata = policy.post("/seed_session", json=ROW).json()[NEMO_GYM_MCP_METADATA_KEY]
    assert (metadata["server_name"], metadata["url_path"], metadata["transport"]) == ("weather", "/mcp", "http")
    result = rpc(agent, "tools/call", metadata["headers"], name="get_weather", arguments={"city": "Oslo"})
    assert result["structuredContent"] == {"weather": "Oslo is sunny"}
    assert call(agent, metadata["headers"], "send_email") == (False, '"called send_email"')
    row = {**ROW, "response": {**ANSWER, "output": [CALL]}}
    verdict = policy.post("/verify", json=row).json()
    assert (verdict["reward"], verdict["calls"], verdict["names"]) == (1.0, ["Oslo"], ["get_weather"])
    assert verdict["response"]["output"][0]["name"] == CALL["name"], "the record keeps the model's own words"
    assert call(agent, metadata["headers"], "reset") == (False, '"empty"')


def test_a_call_that_goes_wrong_is_a_result_that_says_why():
    client = TestClient(exposed())
    headers = client.post("/seed_session", json=ROW).json()["mcp"]["headers"]
    expected = {
        "the session token is missing": call(client, {}, "get_weather", city="Oslo"),
        "the session token is not valid": call(client, {NEMO_GYM_MCP_SESSION_TOKEN_HEADER: "x.y"}, "get_weather"),
        "there is no tool 'verify': the tools are get_weather": call(client, headers, "verify"),
        "HTTP 404 from POST /get_weather: no such city": call(client, headers, "get_weather", city="Atlantis"),
        "HTTP 422 from POST /get_weather: ": call(client, headers, "get_weather", town="Oslo"),
        "HTTP 500 from POST /get_weather: ZeroDivisionError('no tower')": call(
            client, headers, "get_weather", city="Babel"
        ),
    }
    for text, (failed, said) in expected.items():
        assert failed
        assert said.startswith(text), said


def test_a_session_may_call_only_the_tools_that_its_seed_allows():
    client = TestClient(exposed())
    headers = client.post("/seed_session", json={**ROW, "allowed": ["reset"]}).json()["mcp"]["headers"]
    assert [tool["name"] for tool in rpc(client, "tools/list", headers)["tools"]] == ["reset"]
    assert call(client, headers, "get_weather", city="Oslo") == (
        True,
        "tool 'get_weather' is not allowed in this session",
    )


def test_a_typed_seed_gets_the_metadata_in_resources_tools():
    seed = {
        "resources_session_id": "r1",
        "episode_id": {"rollout_id": "7-1"},
        "task_id": {"taskset": "t", "task_id": "1"},
        "task_data": {"allowed": ["get_weather"]},
    }
    client = TestClient(exposed())
    reply = client.post("/seed_session", json=seed).json()
    assert "mcp" not in reply
    parsed = ResourcesSeedSessionResponse.model_validate(reply)
    assert parsed.resources_tools is not None
    assert [tool["name"] for tool in rpc(client, "tools/list", parsed.resources_tools.headers)["tools"]] == [
        "get_weather"
    ]


def test_the_protocol_answers_what_clients_ask():
    client = TestClient(exposed())
    assert rpc(client, "initialize", protocolVersion="2025-06-18")["protocolVersion"] == "2025-06-18"
    assert rpc(client, "initialize", protocolVersion="1999-01-01")["serverInfo"]["name"] == "weather"
    assert rpc(client, "ping") == {}
    assert client.post("/mcp", json={"jsonrpc": "2.0", "method": "notifications/initialized"}).status_code == 202
    assert client.post("/mcp", content=b"{").json()["error"]["code"] == -32700
    assert client.post("/mcp/", json={"jsonrpc": "2.0", "id": 1, "method": "none"}).json()["error"]["code"] == -32601
    bad = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": 3}}
    assert [each["error"]["code"] for each in client.post("/mcp", json=[bad, 7]).json()] == [-32602, -32600]
    assert client.get("/mcp").status_code == 405


METHODS = st.sampled_from(["initialize", "ping", "tools/list", "tools/call", "none", 3, None])
VALUES = st.recursive(st.none() | st.integers() | st.text(max_size=5), lambda inner: st.lists(inner, max_size=2))
PARAMS = st.dictionaries(st.sampled_from(["name", "arguments", "protocolVersion"]), VALUES) | VALUES
REQUESTS = st.fixed_dictionaries({"id": VALUES, "method": METHODS, "params": PARAMS}) | VALUES


@given(body=REQUESTS | st.lists(REQUESTS, max_size=3))
@settings(max_examples=50)
def test_any_message_has_an_answer(body: Any):
    assert TestClient(APP).post("/mcp", content=json.dumps(body)).status_code in (200, 202)


def test_without_the_setting_nothing_is_offered():
    client = TestClient(exposed(expose_tools_over_mcp=False))
    assert client.post("/seed_session", json=ROW).json() == {}
    assert client.post("/mcp", json={}).json() == "called mcp"


class Bare(WeatherServer):
    def mcp_tools(self, harvested: list[Any], catchall: Any) -> Any:
        return harvested


def refusal(change: Any, kind: type[SimpleResourcesServer] = Bare) -> str:
    server = weather(kind)
    app = server.setup_webserver()
    change(app)
    with pytest.raises(ValueError) as refused:  # noqa: PT011  (the caller checks the text)
        maybe_auto_expose(server, app)
    return str(refused.value)


async def query(limit: int) -> int:
    return limit


async def union(body: City | BaseSeedSessionRequest) -> str:
    return ""


async def plain(body: City) -> str:
    return ""


def test_an_application_that_mcp_cannot_express_is_refused():
    from starlette.middleware.gzip import GZipMiddleware

    assert "GZipMiddleware" in refusal(lambda app: app.add_middleware(GZipMiddleware))
    assert "several: /{tool_name}, /{path}" in refusal(lambda app: app.post("/{path}")(plain))
    assert "route /mcp of its own" in refusal(lambda app: app.post("/mcp")(plain))
    assert "'a/b' is not a valid name" in refusal(lambda app: app.post("/a/b")(plain))
    assert "/query takes query parameters" in refusal(lambda app: app.post("/query")(query))
    assert "/union takes a union" in refusal(lambda app: app.post("/union")(union))

    class Reserved(WeatherServer):
        def mcp_tools(self, harvested: list[Any], catchall: Any) -> Any:
            return [{"name": "verify"}]

    assert "'verify' is a route of every resources server" in refusal(lambda app: None, Reserved)


async def test_a_client_of_the_sdk_lists_and_calls_tools():
    pytest.importorskip("mcp", reason="needs the MCP SDK: pip install 'ludus-gym[mcp]'")
    from ludus.http.listening import Listening, bind
    from ludus.integrations.mcp_servers import HttpServer
    from ludus.integrations.mcp_session import McpSession

    server = weather()
    app = server.setup_webserver()
    server.setup_mcp(app)
    headers = TestClient(app).post("/seed_session", json=ROW).json()["mcp"]["headers"]
    socket = bind("weather", "127.0.0.1", 0)
    port = socket.getsockname()[1]
    listening = Listening(app, socket)
    await listening.begin()
    session = McpSession(HttpServer(f"http://127.0.0.1:{port}/mcp", "weather", headers))
    try:
        assert [tool.name for tool in await session.start()][:2] == ["get_weather", "reset"]
        result: Any = await session.call("get_weather", {"city": "Oslo"})
        assert result.content[0].text == '{"weather":"Oslo is sunny"}'
    finally:
        await session.stop()
        await listening.stop()
