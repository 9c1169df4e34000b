"""Agents as authors write them for NeMo Gym run on the classes of this package."""

from __future__ import annotations

import json
from typing import Any
from unittest.mock import MagicMock

import pytest

pytest.importorskip("fastapi", reason="needs FastAPI: pip install 'ludus-nemo-gym[servers]'")

from fastapi import Request, Response
from fastapi.testclient import TestClient
from nemo_gym.base_resources_server import (
    AggregateMetricsRequest,
    BaseRunRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
)
from nemo_gym.base_responses_api_agent import (
    BaseResponsesAPIAgentConfig,
    Body,
    SimpleResponsesAPIAgent,
)
from nemo_gym.config_types import ModelServerRef, ResourcesServerRef
from nemo_gym.openai_utils import (
    NeMoGymEasyInputMessage,
    NeMoGymFunctionCallOutput,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
)
from nemo_gym.rollout_correlation import current_rollout_id
from nemo_gym.server_utils import ServerClient, ServerReply, get_response_json, raise_for_status
from omegaconf import OmegaConf
from pydantic import ConfigDict
from test_nemo_gym_servers import ANSWER, ROW, server

from ludus.http.connection import HttpReply

CALL = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "call_1",
    "name": "increment_counter",
    "arguments": '{"count": 3}',
    "status": "completed",
}


class LoopConfig(BaseResponsesAPIAgentConfig):
    resources_server: ResourcesServerRef
    model_server: ModelServerRef


class LoopRequest(BaseRunRequest):
    model_config = ConfigDict(extra="allow")


class LoopVerifyRequest(BaseVerifyRequest):
    model_config = ConfigDict(extra="allow")


class LoopVerifyResponse(BaseVerifyResponse):
    model_config = ConfigDict(extra="allow")


class LoopAgent(SimpleResponsesAPIAgent):
    """The tool loop."""

    config: LoopConfig
    seen: list[str | None] = []

    async def responses(
        self,
        request: Request,
        response: Response,
        body: NeMoGymResponseCreateParamsNonStreaming = Body(),  # noqa: B008
    ) -> NeMoGymResponse:
        if isinstance(body.input, str):
            body = body.model_copy(update={"input": [NeMoGymEasyInputMessage(role="user", content=body.input)]})
        cookies, new_items = request.cookies, []
        while True:
            asked = body.model_copy(update={"input": body.input + new_items})
            reply = await self.server_client.post(
                server_name=self.config.model_server.name, url_path="/v1/responses", json=asked, cookies=cookies
            )
            await raise_for_status(reply)
            answer = NeMoGymResponse.model_validate(await get_response_json(reply))
            new_items += answer.output
            calls = [item for item in answer.output if item.type == "function_call"]
            for call in calls:
                output = await self.server_client.post(
                    server_name=self.config.resources_server.name,
                    url_path=f"/{call.name}",
                    json=json.loads(call.arguments),
                    cookies=cookies,
                )
                cookies = output.cookies
                text = (await output.content.read()).decode()
                kind = "function_call_output"
                new_items.append(NeMoGymFunctionCallOutput(type=kind, call_id=call.call_id, output=text))
            if not calls:
                break
        for key, value in cookies.items():
            response.set_cookie(key, value)
        answer.output = new_items
        return answer

    async def run(self, request: Request, body: LoopRequest = Body()) -> LoopVerifyResponse:  # noqa: B008
        self.seen.append(current_rollout_id())
        name = self.config.resources_server.name
        seeded = await self.server_client.post(
            server_name=name, url_path="/seed_session", json=body.model_dump(), cookies=request.cookies
        )
        await raise_for_status(seeded)
        played = await self.server_client.post(
            server_name=self.config.name,
            url_path="/v1/responses",
            json=body.responses_create_params,
            cookies=seeded.cookies,
        )
        await raise_for_status(played)
        verify = LoopVerifyRequest.model_validate({**body.model_dump(), "response": await get_response_json(played)})
        judged = await self.server_client.post(
            server_name=name, url_path="/verify", json=verify.model_dump(), cookies=played.cookies
        )
        await raise_for_status(judged)
        return LoopVerifyResponse.model_validate(await get_response_json(judged))


class Wired:
    """Test clients of several servers in place of a `ServerClient`."""

    def __init__(self, **apps: Any) -> None:
        self.apps = apps
        self.global_config_dict = OmegaConf.create({"observability_enabled": False})

    async def post(self, *, server_name: str, url_path: str, json: Any = None, cookies: Any = None) -> Any:
        body = json.model_dump(exclude_unset=True) if hasattr(json, "model_dump") else json
        texts = {name: getattr(value, "value", value) for name, value in (cookies or {}).items()}
        return await asked(self.apps[server_name], url_path, body, texts)


async def asked(app: Any, path: str, body: Any, cookies: dict[str, str]) -> Any:
    """The reply of an application to a POST request, as `ServerClient` gives it."""
    sent: list[Any] = []
    content = json.dumps(body).encode()
    headers = [(b"content-type", b"application/json"), (b"host", b"localhost")]
    headers += [(b"cookie", "; ".join(f"{name}={value}" for name, value in cookies.items()).encode())]

    async def receive() -> Any:
        return {"type": "http.request", "body": content, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": path, "headers": headers, "query_string": b"", "root_path": ""}
    await app(scope, receive, send)
    answer = b"".join(message.get("body", b"") for message in sent[1:])
    return ServerReply(path, HttpReply(sent[0]["status"], answer, sent[0]["headers"]))


def agent(**settings: Any) -> LoopAgent:
    config = LoopConfig(
        host="127.0.0.1",
        port=1,
        entrypoint="app.py",
        name="loop",
        resources_server=ResourcesServerRef(type="resources_servers", name="counter"),
        model_server=ModelServerRef(type="responses_api_models", name="policy"),
        **settings,
    )
    return LoopAgent(config=config, server_client=MagicMock(spec=ServerClient))


def model() -> Any:
    from fastapi import FastAPI

    app, answers = FastAPI(), [{**ANSWER, "output": [CALL]}, ANSWER]

    @app.post("/v1/responses")
    async def respond(body: dict[str, Any]) -> Any:
        called = any(item.get("type") == "function_call_output" for item in body["input"])
        return answers[called]

    return app


def test_an_agent_plays_a_row_with_a_model_and_a_resources_server():
    loop = agent()
    app = loop.setup_webserver()
    wired = Wired(counter=server().setup_webserver(), policy=model(), loop=app)
    object.__setattr__(loop, "server_client", wired)
    row = {**ROW, "initial_count": 2, "expected_count": 5, "_ng_task_index": 7, "_ng_rollout_index": 1}
    result = TestClient(app).post("/run", json=row)
    assert result.status_code == 200, result.text
    verdict = result.json()
    assert (verdict["reward"], verdict["count"]) == (1.0, 5)
    kinds = [item["type"] for item in verdict["response"]["output"]]
    assert kinds == ["function_call", "function_call_output", "message"]
    assert loop.seen == [None], "nobody follows rollouts"


def test_a_followed_rollout_has_its_id_in_paths_and_in_the_context():
    loop = agent(token_id_capture=True)
    tree = OmegaConf.create(
        {
            "observability_enabled": True,
            "token_id_capture": {"enabled": True},
            "policy": {"responses_api_models": {"m": {"host": "127.0.0.1", "port": 5}}},
        }
    )
    loop.server_client = ServerClient.model_construct(global_config_dict=tree)
    row = LoopRequest.model_validate({**ROW, "_ng_task_index": 7, "_ng_rollout_index": 1})
    assert loop.url_path_for_run("/v1/responses", row) == "/ng-rollout/7-1/training-token-capture/v1/responses"
    assert loop.resolve_model_base_url("policy") == "http://127.0.0.1:5/v1"
    assert loop.resolve_model_base_url("policy", "7-1").endswith("/ng-rollout/7-1/training-token-capture/v1")


def test_a_client_that_is_a_mock_follows_no_rollouts():
    loop = agent()
    row = LoopRequest.model_validate({**ROW, "_ng_task_index": 7, "_ng_rollout_index": 1})
    assert loop.url_path_for_run("/v1/responses", row) == "/v1/responses"
    assert loop.base_url_for_run("http://127.0.0.1:5", row) == "http://127.0.0.1:5"
    request = MagicMock(path_params={"rollout_id": "7-1"})
    assert loop.url_path_for_request("/v1/responses", request) == "/ng-rollout/7-1/v1/responses"


async def test_an_agent_that_skips_verification_has_no_metrics():
    rows = [{"_ng_task_index": 0, "_ng_rollout_index": 0, "reward": 1.0}]
    request = AggregateMetricsRequest(verify_responses=rows)
    assert (await agent().aggregate_metrics(request)).agent_metrics["mean/reward"] == 1.0
    assert (await agent(skip_verification=True).aggregate_metrics(request)).agent_metrics == {}
