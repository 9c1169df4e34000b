"""Test suites in the manner of authors of agents: the other servers are mocks, or HTTP clients see the real URLs."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from unittest.mock import AsyncMock, MagicMock, call

import pytest
from pydantic import ConfigDict, Field, PrivateAttr

pytest.importorskip("fastapi", reason="needs FastAPI: pip install 'ludus-nemo-gym[servers]'")

from fastapi import FastAPI, Request, Response
from fastapi.testclient import TestClient
from nemo_gym.base_resources_server import BaseRunRequest, BaseVerifyRequest, BaseVerifyResponse
from nemo_gym.base_responses_api_agent import (
    AggregateMetrics,
    AggregateMetricsRequest,
    BaseResponsesAPIAgentConfig,
    Body,
    SimpleResponsesAPIAgent,
)
from nemo_gym.config_types import ModelServerRef, ResourcesServerRef
from nemo_gym.global_config import ROLLOUT_INDEX_KEY_NAME, TASK_INDEX_KEY_NAME
from nemo_gym.openai_utils import (
    NeMoGymEasyInputMessage,
    NeMoGymFunctionCallOutput,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    NeMoGymResponseFunctionToolCall,
    NeMoGymResponseOutputMessage,
    NeMoGymResponseOutputText,
    accumulate_response_usage,
)
from nemo_gym.rollout_collection import (
    NG_FAILURE_CLASS_KEY,
    NG_NO_PERSIST_KEY,
    NG_TERMINAL_KEY,
    _attach_trajectory_record,
)
from nemo_gym.rollout_correlation import current_rollout_id
from nemo_gym.rollout_health import run_health_checks
from nemo_gym.rollout_observability import (
    AgentEpisode,
    AgentInvocation,
    AgentObservationBundle,
    ModelCallRef,
    ToolCallObservation,
    TrajectoryRecord,
)
from nemo_gym.server_utils import ServerClient, apply_rollout_prefix, get_response_json, raise_for_status

PARAMS = {"input": [{"role": "user", "content": "weather?"}]}
USAGE = {
    "input_tokens": 5,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens": 2,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 7,
}


def answer(*output: Any) -> dict[str, Any]:
    return NeMoGymResponse(
        id="resp_1",
        created_at=1.0,
        model="dummy",
        object="response",
        output=list(output),
        parallel_tool_calls=True,
        tool_choice="auto",
        tools=[],
        usage=USAGE,
    ).model_dump()


CALL = NeMoGymResponseFunctionToolCall(call_id="c1", name="get_weather", arguments='{"city": "Rome"}')
SAID = NeMoGymResponseOutputMessage(
    id="m", content=[NeMoGymResponseOutputText(annotations=[], text="It is warm.")], role="assistant"
)


def reply(body: Any, cookies: dict[str, str] | None = None, status: int = 200) -> AsyncMock:
    content = json.dumps(body).encode()
    made = AsyncMock()
    made.ok, made.status, made.cookies = status < 400, status, cookies or {}
    made.read.return_value = content
    made.json.return_value = body
    made.content.read.return_value = content
    return made


class ToolAgentConfig(BaseResponsesAPIAgentConfig):
    resources_server: ResourcesServerRef
    model_server: ModelServerRef
    max_steps: int | None = None
    concurrency: int = 4


class ToolAgentRunRequest(BaseRunRequest):
    model_config = ConfigDict(extra="allow")


class ToolAgentVerifyRequest(BaseVerifyRequest):
    model_config = ConfigDict(extra="allow")


class ToolAgentVerifyResponse(BaseVerifyResponse):
    model_config = ConfigDict(extra="allow")


class ToolAgent(SimpleResponsesAPIAgent):
    config: ToolAgentConfig
    calls: int = Field(default=0)
    _slots: asyncio.Semaphore = PrivateAttr()
    _episode: AgentEpisode | None = PrivateAttr(default=None)

    def model_post_init(self, context: Any, /) -> None:
        self._slots = asyncio.Semaphore(self.config.concurrency)

    async def responses(
        self,
        request: Request,
        response: Response,
        body: NeMoGymResponseCreateParamsNonStreaming = Body(),  # noqa: B008
    ) -> NeMoGymResponse:
        body = body.model_copy(deep=True)
        if isinstance(body.input, str):
            body.input = [NeMoGymEasyInputMessage(role="user", content=body.input)]
        items: list[Any] = []
        usage, steps, model_cookies, tool_cookies = None, 0, None, request.cookies
        refs, tools = list[ModelCallRef](), list[ToolCallObservation]()
        while self.config.max_steps is None or steps < self.config.max_steps:
            steps += 1
            got = await self.server_client.post(
                server_name=self.config.model_server.name,
                url_path=self.url_path_for_request("/v1/responses", request),
                json=body.model_copy(update={"input": body.input + items}),
                cookies=model_cookies,
            )
            await raise_for_status(got)
            model_cookies = got.cookies
            said = NeMoGymResponse.model_validate(await get_response_json(got))
            usage = accumulate_response_usage(usage, said.usage)
            refs.append(ModelCallRef(model_ref=self.config.model_server, response_id=said.id))
            items += said.output
            asked = [item for item in said.output if item.type == "function_call"]
            for tool in asked:
                got = await self.server_client.post(
                    server_name=self.config.resources_server.name,
                    url_path=f"/{tool.name}",
                    json=json.loads(tool.arguments),
                    cookies=tool_cookies,
                )
                tool_cookies = got.cookies
                text = (await got.content.read()).decode()
                items.append(NeMoGymFunctionCallOutput(type="function_call_output", call_id=tool.call_id, output=text))
                status = "completed" if got.ok else "failed"
                tools.append(
                    ToolCallObservation(
                        invocation_id="root", tool_call_id=tool.call_id, tool_name=tool.name, status=status
                    )
                )
            if not asked:
                break
        for cookies in (model_cookies or {}, tool_cookies):
            for key, value in cookies.items():
                response.set_cookie(key, value)
        said.output, said.usage = items, usage
        invocation = AgentInvocation(invocation_id="root", status="completed", model_calls=refs, conversation=items)
        self._episode = AgentEpisode(
            response=said, observations=AgentObservationBundle(source="tool_agent", records=[invocation, *tools])
        )
        return said

    async def run(
        self,
        request: Request,
        body: ToolAgentRunRequest = Body(),  # noqa: B008
    ) -> ToolAgentVerifyResponse:
        async with self._slots:
            self.calls += 1
            cookies = request.cookies
            seeded = await self.server_client.post(
                server_name=self.config.resources_server.name,
                url_path="/seed_session",
                json=body.model_dump(),
                cookies=cookies,
            )
            await raise_for_status(seeded)
            played = await self.server_client.post(
                server_name=self.config.name,
                url_path=self.url_path_for_run("/v1/responses", body),
                json=body.responses_create_params,
                cookies=seeded.cookies,
            )
            await raise_for_status(played)
            verify = ToolAgentVerifyRequest.model_validate(body.model_dump() | {"response": await played.json()})
            judged = await self.server_client.post(
                server_name=self.config.resources_server.name,
                url_path="/verify",
                json=verify.model_dump(),
                cookies=played.cookies,
            )
            await raise_for_status(judged)
            return ToolAgentVerifyResponse.model_validate(await judged.json())

    async def aggregate_metrics(self, body: AggregateMetricsRequest = Body()) -> AggregateMetrics:  # noqa: B008
        got = await self.server_client.post(
            server_name=self.config.resources_server.name, url_path="/aggregate_metrics", json=body
        )
        await raise_for_status(got)
        return AggregateMetrics.model_validate(await get_response_json(got))


@pytest.fixture
def agent() -> ToolAgent:
    config = ToolAgentConfig(
        host="0.0.0.0",
        port=8080,
        entrypoint="",
        name="tool_agent",
        resources_server=ResourcesServerRef(type="resources_servers", name="weather"),
        model_server=ModelServerRef(type="responses_api_models", name="policy"),
    )
    return ToolAgent(config=config, server_client=MagicMock(spec=ServerClient))


def test_the_loop_asks_the_model_and_the_tool_and_passes_cookies_on(agent):
    agent.server_client.post.side_effect = [
        reply(answer(CALL), {"model": "m1"}),
        reply({"celsius": 30}, {"tools": "t1"}),
        reply(answer(SAID), {"model": "m2"}),
    ]
    client = TestClient(agent.setup_webserver(), cookies={"tools": "t0"})
    got = client.post("/v1/responses", json={"input": "weather?"})
    assert got.status_code == 200, got.text
    assert [item["type"] for item in got.json()["output"]] == ["function_call", "function_call_output", "message"]
    assert got.json()["output"][1]["output"] == '{"celsius": 30}'
    assert got.json()["usage"]["total_tokens"] == 14
    assert (got.cookies["model"], got.cookies["tools"]) == ("m2", "t1")
    names = [sent.kwargs["server_name"] for sent in agent.server_client.post.await_args_list]
    assert names == ["policy", "weather", "policy"]
    first, tool, second = (sent.kwargs for sent in agent.server_client.post.await_args_list)
    assert first["json"].input == [NeMoGymEasyInputMessage(role="user", content="weather?")]
    assert tool["json"] == {"city": "Rome"}
    assert "tools" in tool["cookies"]
    assert second["cookies"] == {"model": "m1"}
    assert [type(item).__name__ for item in second["json"].input] == [
        "NeMoGymEasyInputMessage",
        "NeMoGymResponseFunctionToolCall",
        "NeMoGymFunctionCallOutput",
    ]


async def test_a_direct_call_with_mocks_of_request_and_response(agent):
    agent.config.max_steps = 1
    agent.server_client.post.side_effect = [reply(answer(CALL)), reply("broken", status=500)]
    request, response = MagicMock(cookies={}), MagicMock()
    said = await agent.responses(request, response, NeMoGymResponseCreateParamsNonStreaming(**PARAMS))
    assert said.output[-1].output == '"broken"'
    assert agent.server_client.post.await_args_list[0] == call(
        server_name="policy",
        url_path="/v1/responses",
        json=agent.server_client.post.await_args_list[0].kwargs["json"],
        cookies=None,
    )


def test_a_run_posts_seed_responses_and_verify_and_returns_the_verdict(agent):
    verdict = {"responses_create_params": PARAMS, "response": answer(SAID), "reward": 0.5, "note": "x"}
    agent.server_client.post.side_effect = [reply({}, {"s": "1"}), reply(answer(SAID), {"s": "2"}), reply(verdict)]
    row = {"responses_create_params": PARAMS, "city": "Rome", TASK_INDEX_KEY_NAME: 1, ROLLOUT_INDEX_KEY_NAME: 0}
    got = TestClient(agent.setup_webserver()).post("/run", json=row)
    assert (got.json()["reward"], got.json()["note"], agent.calls) == (0.5, "x", 1)
    seed, responses, verify = (sent.kwargs for sent in agent.server_client.post.await_args_list)
    assert seed["json"]["city"] == "Rome"
    assert seed["json"][TASK_INDEX_KEY_NAME] == 1
    assert (responses["server_name"], responses["url_path"], responses["cookies"]) == (
        "tool_agent",
        "/v1/responses",
        {"s": "1"},
    )
    assert verify["cookies"] == {"s": "2"}
    assert verify["json"]["response"]["output"][0]["content"][0]["text"] == "It is warm."


def test_metrics_of_the_resources_server_are_passed_on(agent):
    agent.server_client.post.side_effect = [reply({"agent_metrics": {"mean/reward": 1.0}, "key_metrics": {}})]
    got = TestClient(agent.setup_webserver()).post("/aggregate_metrics", json={"verify_responses": [{"reward": 1.0}]})
    assert got.json()["agent_metrics"] == {"mean/reward": 1.0}


@pytest.mark.parametrize("prefix", ["", "/ng-rollout/7-0", "/ng-rollout/7-0/training-token-capture"])
def test_the_prefix_of_a_request_is_kept_on_the_way_to_the_model(agent, prefix):
    agent.server_client.post.side_effect = [reply(answer(SAID))]
    got = TestClient(agent.setup_webserver()).post(f"{prefix}/v1/responses", json=PARAMS)
    assert got.status_code == 200
    assert agent.server_client.post.await_args.kwargs["url_path"] == f"{prefix}/v1/responses"


@pytest.mark.parametrize("prefix", ["", "/ng-rollout/7-0", "/ng-rollout/7-0/training-token-capture"])
def test_a_double_of_a_request_needs_only_its_path(agent, prefix):
    path = f"{prefix}/v1/responses"
    with_attributes = MagicMock()
    with_attributes.url.path = path
    scope = {"type": "http", "method": "POST", "path": path, "headers": [], "query_string": b"", "server": ("h", 1)}
    for request in (with_attributes, Request(scope)):
        assert agent.url_path_for_request("/v1/responses", request) == path


def test_a_url_names_one_rollout(agent):
    url = apply_rollout_prefix("http://h:1/", "7-0")
    assert url == "http://h:1/ng-rollout/7-0"
    assert apply_rollout_prefix(url, "7-0") == url
    assert apply_rollout_prefix(url, "7-0", token_capture=True) == f"{url}/training-token-capture"
    assert apply_rollout_prefix(url, None) == url


def test_a_redirected_model_server_is_what_a_harness_calls(agent, monkeypatch):
    agent.server_client = ServerClient.model_construct(
        global_config_dict={"policy": {"responses_api_models": {"m": {"host": "h", "port": 1}}}}
    )
    assert agent.resolve_model_base_url("policy") == "http://h:1/v1"
    monkeypatch.setenv("NEMO_GYM_MODEL_SERVER_NAME", "policy")
    monkeypatch.setenv("NEMO_GYM_MODEL_SERVER_BASE_URL", "http://proxy:9/v1")
    assert agent.resolve_model_base_url("policy", "7-0") == "http://proxy:9/ng-rollout/7-0/v1"


@pytest.mark.parametrize("method", ["_build_server_base_url", "_resolve_base_url"])
def test_a_test_double_of_the_client_gives_the_address_of_a_model_server(agent, method):
    agent.server_client.global_config_dict = {"policy": {"responses_api_models": {"m": {"host": "h", "port": 1}}}}
    getattr(agent.server_client, method).return_value = "http://double:7"
    assert agent.resolve_model_base_url("policy", "7-0") == "http://double:7/ng-rollout/7-0/v1"


async def test_observations_become_a_healthy_trajectory(agent, tmp_path):
    agent.server_client.post.side_effect = [reply(answer(CALL)), reply({"celsius": 30}), reply(answer(SAID))]
    said = await agent.responses(MagicMock(cookies={}), MagicMock(), NeMoGymResponseCreateParamsNonStreaming(**PARAMS))
    row = {TASK_INDEX_KEY_NAME: 0, ROLLOUT_INDEX_KEY_NAME: 0}
    result = {
        **row,
        "reward": 1.0,
        "response": said.model_dump(mode="json"),
        "ng_agent_observations": agent._episode.observations.model_dump(mode="json"),
    }
    _attach_trajectory_record(row, result)
    record = TrajectoryRecord.model_validate(result["ng_trajectory"])
    assert [invocation.invocation_id for invocation in record.invocations] == ["root"]
    assert [(tool.tool_name, tool.output) for tool in record.tool_calls] == [("get_weather", '{"celsius": 30}')]
    path = tmp_path / "rollouts.jsonl"
    path.write_text(json.dumps(result) + "\n")
    assert run_health_checks([path]).rollouts[0].verdict == "healthy"


class OwnApplication(ToolAgent):
    """Makes its own application, and reports failures as results."""

    def setup_webserver(self) -> FastAPI:
        app = FastAPI()
        self.setup_session_middleware(app)
        app.post("/v1/responses")(self.responses)
        app.post("/run")(self.run)
        return app

    async def run(self, request: Request, body: ToolAgentRunRequest = Body()) -> dict[str, Any]:  # noqa: B008
        return {
            **body.model_dump(mode="json"),
            "reward": 0.0,
            NG_FAILURE_CLASS_KEY: "timeout_exceeded",
            NG_TERMINAL_KEY: True,
            NG_NO_PERSIST_KEY: False,
            "rollout": current_rollout_id(),
            "session": bool(request.session),
        }


def test_an_agent_that_makes_its_own_application_answers_with_its_failures(agent):
    own = OwnApplication(config=agent.config, server_client=MagicMock(spec=ServerClient))
    got = TestClient(own.setup_webserver()).post("/run", json={"responses_create_params": PARAMS, "x": 1}).json()
    assert (got["_ng_failure_class"], got["_ng_failure_terminal"], got["x"]) == ("timeout_exceeded", True, 1)
    assert got["session"] is True


def test_a_row_with_an_unknown_request_field_is_refused(agent):
    client = TestClient(agent.setup_webserver())
    bad = {"responses_create_params": {**PARAMS, "colour": "red"}}
    assert client.post("/run", json=bad).status_code == 422
    assert agent.server_client.post.await_count == 0


def test_an_abstract_agent_cannot_be_made_and_one_by_model_construct_can():
    class Half(SimpleResponsesAPIAgent):
        async def responses(self, body: Any = None) -> Any: ...

    with pytest.raises(TypeError, match="abstract"):
        Half(config=MagicMock(), server_client=MagicMock(spec=ServerClient))
    made = ToolAgent.model_construct(
        config=ToolAgentConfig.model_construct(concurrency=1), server_client=MagicMock(spec=ServerClient)
    )
    assert made._slots._value == 1
    assert made.rollout_id_from_run({TASK_INDEX_KEY_NAME: 0, ROLLOUT_INDEX_KEY_NAME: 0}) is None
