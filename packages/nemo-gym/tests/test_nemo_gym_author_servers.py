"""Test suites in the manner of authors of resources servers: constructed directly, with a mock as the client."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar, Literal
from unittest.mock import AsyncMock, MagicMock, patch

import pytest
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError

pytest.importorskip("fastapi", reason="needs FastAPI: pip install 'ludus-nemo-gym[servers]'")

from fastapi import Body, FastAPI, Request, Response
from fastapi.responses import PlainTextResponse
from fastapi.testclient import TestClient
from nemo_gym.base_resources_server import (
    AggregateMetricsRequest,
    BaseMultiRewardVerifyResponse,
    BaseResourcesServerConfig,
    BaseRunRequest,
    BaseSeedSessionRequest,
    BaseSeedSessionResponse,
    BaseVerifyRequest,
    BaseVerifyResponse,
    ReverifyMode,
    SimpleResourcesServer,
)
from nemo_gym.config_types import ModelServerRef
from nemo_gym.judge import JudgeError, call_judge
from nemo_gym.openai_utils import (
    NeMoGymEasyInputMessage,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
    NeMoGymResponseOutputMessage,
    NeMoGymResponseOutputText,
)
from nemo_gym.reward_profile import compute_pass_majority_metrics, highest_k_metrics
from nemo_gym.rollout_correlation import RolloutContextMiddleware, current_rollout_id
from nemo_gym.server_utils import SESSION_ID_KEY, ServerClient

PARAMS = {"input": [{"role": "user", "content": "What is 2 + 2?"}]}


def message(text: str, message_id: str = "msg_1") -> NeMoGymResponseOutputMessage:
    return NeMoGymResponseOutputMessage(
        id=message_id, content=[NeMoGymResponseOutputText(annotations=[], text=text)], role="assistant"
    )


def response(*output: Any) -> NeMoGymResponse:
    return NeMoGymResponse(
        id="resp_1",
        created_at=0.0,
        model="dummy",
        object="response",
        output=list(output),
        parallel_tool_calls=False,
        tool_choice="auto",
        tools=[],
    )


def config_of(kind: type[BaseResourcesServerConfig], **fields: Any) -> Any:
    return kind(host="0.0.0.0", port=8080, entrypoint="app.py", name="server", **fields)


class JudgedConfig(BaseResourcesServerConfig):
    REVERIFY_MODE: ClassVar[ReverifyMode] = ReverifyMode.STATELESS

    judge_model_server: ModelServerRef
    judge_responses_create_params: NeMoGymResponseCreateParamsNonStreaming
    judge_prompt_template: str = "Q: {question}\nE: {expected}\nG: {generated}"
    judge_equal_label: str = "[[A=B]]"
    judge_endpoint_max_concurrency: int | None = 2
    check_twice_swap: bool = False


class JudgedRequest(BaseRunRequest):
    model_config = ConfigDict(extra="allow")

    uuid: str | None = None
    expected_answer: str
    options: list[dict[str, str]] = Field(default_factory=list)


class JudgedVerifyRequest(JudgedRequest, BaseVerifyRequest):
    pass


class Evaluation(BaseModel):
    response: NeMoGymResponse
    verdict: str | None = None


class JudgedVerifyResponse(BaseVerifyResponse):
    model_config = ConfigDict(extra="allow")

    extracted_answer: str
    evaluations: list[Evaluation]


class JudgedServer(SimpleResourcesServer):
    """Asks a judge whether two answers are equal, in both orders if it is told so."""

    config: JudgedConfig

    _semaphore: asyncio.Semaphore | None = PrivateAttr(default=None)

    def model_post_init(self, context: Any) -> None:
        super().model_post_init(context)
        if self.config.judge_endpoint_max_concurrency is not None:
            self._semaphore = asyncio.Semaphore(self.config.judge_endpoint_max_concurrency)

    async def verify(self, body: JudgedVerifyRequest) -> JudgedVerifyResponse:
        answer = body.response.output_text
        first, verdict = await self._judge(body.expected_answer, answer)
        evaluations, equal = [verdict], first
        if equal and self.config.check_twice_swap:
            equal, verdict = await self._judge(answer, body.expected_answer)
            evaluations.append(verdict)
        return JudgedVerifyResponse(
            **body.model_dump(), reward=float(equal), extracted_answer=answer, evaluations=evaluations
        )

    async def _judge(self, expected: str, generated: str) -> tuple[bool, Evaluation]:
        params = self.config.judge_responses_create_params.model_copy(deep=True)
        text = self.config.judge_prompt_template.format(question="?", expected=expected, generated=generated)
        params.input = [NeMoGymEasyInputMessage(role="user", content=text)]
        assert self._semaphore is not None
        async with self._semaphore:
            judged = await call_judge(
                self.server_client,
                server_name=self.config.judge_model_server.name,
                url_path="/v1/responses",
                json=params,
                response_model=NeMoGymResponse,
            )
        last = judged.output[-1]
        said = last.content[-1].text if last.type == "message" and last.role == "assistant" else ""
        return self.config.judge_equal_label in said, Evaluation(response=judged, verdict=said)

    def compute_metrics(self, tasks: list[list[dict[str, Any]]]) -> dict[str, Any]:
        return compute_pass_majority_metrics(tasks, answer_key="extracted_answer")[0]

    def get_key_metrics(self, agent_metrics: dict[str, Any]) -> dict[str, Any]:
        return highest_k_metrics(agent_metrics, "pass@{k}") | {"mean/reward": agent_metrics["mean/reward"]}


@pytest.fixture
def judged() -> JudgedServer:
    config = config_of(
        JudgedConfig,
        judge_model_server={"type": "responses_api_models", "name": "judge"},
        judge_responses_create_params={"input": [], "temperature": 0.0},
    )
    return JudgedServer(config=config, server_client=MagicMock(spec=ServerClient))


def replies(server: SimpleResourcesServer, *texts: str) -> AsyncMock:
    answers = []
    for text in texts:
        answer = MagicMock()
        answer.read = AsyncMock(return_value=response(message(text)).model_dump_json().encode())
        answers.append(answer)
    server.server_client.post = AsyncMock(side_effect=answers)
    return server.server_client.post


def verify_request(text: str = "4", **fields: Any) -> JudgedVerifyRequest:
    return JudgedVerifyRequest(
        responses_create_params=NeMoGymResponseCreateParamsNonStreaming(**PARAMS),
        response=response(message(text)),
        expected_answer="4",
        **fields,
    )


@pytest.mark.parametrize(("said", "reward"), [("They agree: [[A=B]]", 1.0), ("[[A!=B]]", 0.0), ("", 0.0)])
async def test_a_judge_is_asked_with_keywords_only_and_its_text_is_the_verdict(judged, said, reward):
    post = replies(judged, said)
    result = await judged.verify(verify_request(uuid="u", difficulty="easy"))
    assert (result.reward, result.extracted_answer, result.uuid, result.difficulty) == (reward, "4", "u", "easy")
    assert post.call_args.args == ()
    assert set(post.call_args.kwargs) == {"server_name", "url_path", "json"}
    sent = post.call_args.kwargs["json"]
    assert isinstance(sent.input[0], NeMoGymEasyInputMessage)
    assert sent.model_dump(exclude_unset=True)["temperature"] == 0.0
    assert judged.config.judge_responses_create_params.input == []


async def test_a_judge_may_be_asked_in_both_orders(judged):
    judged.config.check_twice_swap = True
    post = replies(judged, "[[A=B]]", "[[A!=B]]")
    result = await judged.verify(verify_request())
    assert (result.reward, post.await_count) == (0.0, 2)
    assert [evaluation.verdict for evaluation in result.evaluations] == ["[[A=B]]", "[[A!=B]]"]


async def test_a_broken_judge_raises_in_a_direct_call_and_is_a_failure_over_http(judged):
    judged.server_client.post = AsyncMock(side_effect=OSError("no route"))
    with pytest.raises(JudgeError, match="OSError: no route"):
        await judged.verify(verify_request())
    reply = TestClient(judged.setup_webserver()).post("/verify", json=verify_request().model_dump(mode="json"))
    assert reply.status_code == 200
    assert reply.json()["_ng_failure_class"] == reply.json()["failure_kind"] == "judge_failed"
    assert reply.json()["mask_sample"] is True
    assert reply.json()["expected_answer"] == "4"


def test_over_http_a_verdict_has_the_row_the_response_and_all_new_fields(judged):
    replies(judged, "[[A=B]]")
    reply = TestClient(judged.setup_webserver()).post(
        "/verify",
        json={**verify_request(extra_field=[1, {"a": None}]).model_dump(mode="json"), "agent_ref": {"name": "a"}},
    )
    body = reply.json()
    assert (body["reward"], body["extra_field"], body["agent_ref"]) == (1.0, [1, {"a": None}], {"name": "a"})
    assert (body["mask_sample"], body["failure_kind"], body["failure_reason"]) == (False, None, None)
    assert body["response"]["output"][0]["content"][0]["text"] == "4"
    assert TestClient(judged.setup_webserver()).get("/reverify_mode").json() == "stateless"


async def test_metrics_count_answers_and_select_the_highest_k(judged):
    rows = [
        {"_ng_task_index": task, "_ng_rollout_index": rollout, "reward": reward, "extracted_answer": answer}
        for task, rollout, reward, answer in [(0, 0, 1.0, "4"), (0, 1, 0.0, "5"), (1, 0, 1.0, "2"), (1, 1, 1.0, "2")]
    ]
    metrics = await judged.aggregate_metrics(AggregateMetricsRequest(verify_responses=rows))
    assert metrics.agent_metrics["majority@1/accuracy"] == 100.0
    assert metrics.key_metrics["pass@2/accuracy"] == 100.0
    assert metrics.key_metrics["mean/reward"] == 0.75
    assert [group["_ng_task_index"] for group in metrics.group_level_metrics] == [0, 1]


def test_a_row_without_its_field_is_refused_and_a_server_by_model_construct_needs_nothing():
    with pytest.raises(ValidationError, match="expected_answer"):
        JudgedVerifyRequest(responses_create_params=PARAMS, response=response())
    bare = JudgedServer.model_construct(
        config=JudgedConfig.model_construct(name="x"), server_client=MagicMock(spec=ServerClient)
    )
    assert bare._semaphore is not None
    assert bare.normalize_tool_name("mcp__x__search") == "search"


async def test_an_answer_without_text_has_an_empty_output_text(judged):
    post = replies(judged, "[[A!=B]]")
    body = verify_request()
    body.response = response()
    assert (await judged.verify(body)).extracted_answer == ""
    assert post.await_count == 1
    assert NeMoGymResponse.model_construct(output=[message("a"), message("b")]).output_text == "ab"


class StockConfig(BaseResourcesServerConfig):
    REVERIFY_MODE = ReverifyMode.UNSUPPORTED
    max_items: int = 3
    mode: Literal["strict", "loose"] = "strict"


class AddItem(BaseModel):
    model_config = ConfigDict(extra="forbid")

    item: str
    count: int = Field(default=1, ge=1)


class StockSeedRequest(BaseSeedSessionRequest):
    model_config = ConfigDict(extra="allow")

    verifier_metadata: dict[str, Any] | None = None


class StockSeedResponse(BaseSeedSessionResponse):
    items: list[str]


class StockServer(SimpleResourcesServer):
    """State for each session, tools of every form, and everything that authors do to the application."""

    config: StockConfig
    stock: dict[str, list[str]] = Field(default_factory=dict)
    events: list[str] = Field(default_factory=list)

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        for name in ("add_item", "list_items"):
            app.post(f"/{name}")(getattr(self, name))
        app.add_api_route("/count", self.count, methods=["GET"])
        app.post("/raw", response_class=PlainTextResponse)(self.raw)
        app.state.stock = self.stock
        inner = app.router.lifespan_context

        @asynccontextmanager
        async def lifespan(current: FastAPI) -> AsyncIterator[Any]:
            self.events.append("start")
            async with inner(current) as state:
                yield state
            self.events.append("stop")

        app.router.lifespan_context = lifespan

        @app.middleware("http")
        async def timing(request: Request, call_next: Any) -> Response:
            reply = await call_next(request)
            reply.headers["x-session"] = request.session[SESSION_ID_KEY]
            return reply

        app.post("/{tool_name}")(self.unknown_tool)
        return app

    async def seed_session(self, request: Request, body: StockSeedRequest) -> StockSeedResponse:
        items = list((body.verifier_metadata or {}).get("items", []))
        self.stock[request.session[SESSION_ID_KEY]] = items
        request.session["seeded"] = True
        return StockSeedResponse(items=items)

    async def add_item(self, request: Request, body: AddItem) -> dict[str, Any]:
        items = self.stock.setdefault(request.session[SESSION_ID_KEY], [])
        items += [body.item] * body.count
        return {"items": items, "seeded": request.session.get("seeded", False)}

    async def list_items(self, request: Request, body: dict[str, Any] = Body(default={})) -> list[str]:  # noqa: B008
        return self.stock.get(request.session[SESSION_ID_KEY], [])

    async def count(self, request: Request) -> int:
        return len(request.app.state.stock)

    async def raw(self, request: Request) -> PlainTextResponse:
        return PlainTextResponse((await request.body()).decode()[::-1])

    async def unknown_tool(self, tool_name: str, request: Request) -> PlainTextResponse:
        await request.json()
        return PlainTextResponse(f"no tool {tool_name}", status_code=404)

    async def verify(self, request: Request, body: BaseVerifyRequest) -> BaseMultiRewardVerifyResponse:
        items = self.stock.pop(request.session[SESSION_ID_KEY], [])
        parts = {"some": float(bool(items)), "few": float(len(items) <= self.config.max_items)}
        return BaseMultiRewardVerifyResponse(
            **body.model_dump(), reward=sum(parts.values()) / 2, reward_components=parts
        )


@pytest.fixture
def stock() -> StockServer:
    return StockServer(config=config_of(StockConfig), server_client=MagicMock(spec=ServerClient))


def test_tools_of_every_form_share_the_state_of_their_session(stock):
    with TestClient(stock.setup_webserver()) as client:
        seeded = client.post("/seed_session", json={"verifier_metadata": {"items": ["pen"]}, "agent_ref": {}, **PARAMS})
        assert seeded.json() == {"items": ["pen"]}
        assert client.post("/add_item", json={"item": "ink", "count": 2}).json() == {
            "items": ["pen", "ink", "ink"],
            "seeded": True,
        }
        assert client.post("/list_items").json() == ["pen", "ink", "ink"]
        assert client.get("/count").json() == 1
        assert client.post("/raw", content="abc").text == "cba"
        assert client.post("/no_such_tool", json={}).text == "no tool no_such_tool"
        assert client.post("/add_item", json={"item": "ink", "colour": "red"}).status_code == 422
        body = {"responses_create_params": PARAMS, "response": response(message("done")).model_dump(mode="json")}
        verdict = client.post("/verify", json=body).json()
        assert verdict["reward_components"] == {"some": 1.0, "few": 1.0}
        assert stock.events == ["start"]
    assert stock.events == ["start", "stop"]
    assert stock.stock == {}


def test_two_clients_have_two_sessions_and_a_session_keeps_its_id(stock):
    app = stock.setup_webserver()
    one, two = TestClient(app), TestClient(app)
    first, second = (client.post("/seed_session", json={}).headers["x-session"] for client in (one, two))
    assert first != second
    assert one.post("/list_items").headers["x-session"] == first
    assert "set-cookie" in one.post("/list_items").headers
    assert list(one.cookies) == ["StockServer___server"]
    assert len(stock.stock) == 2


async def test_handlers_are_called_directly_with_a_mock_of_the_request(stock):
    request = MagicMock(spec=Request)
    request.session = {SESSION_ID_KEY: "s"}
    await stock.seed_session(request, StockSeedRequest(verifier_metadata={"items": ["a"]}))
    await stock.add_item(request, AddItem(item="b"))
    body = BaseVerifyRequest(responses_create_params=PARAMS, response=response(message("x")))
    assert (await stock.verify(request, body)).reward == 1.0
    assert stock.config.REVERIFY_MODE is ReverifyMode.UNSUPPORTED
    assert (await stock.get_reverify_mode()) == "unsupported"


class RoutesReplaced(StockServer):
    """Registers a verify of its own in place of the base's, and code for the start of the application."""

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.router.routes = [route for route in app.router.routes if getattr(route, "path", "") != "/verify"]
        app.post("/verify")(self.own_verify)
        app.router.routes.insert(0, app.router.routes.pop())
        with pytest.warns(DeprecationWarning, match="on_event"):
            app.on_event("startup")(self.begin)
        return app

    async def begin(self) -> None:
        self.events.append("begin")

    async def own_verify(self, request: Request) -> dict[str, Any]:
        return {"reward": 0.25, "keys": sorted(await request.json())}


def test_replaced_routes_and_start_up_code_of_a_subclass_work():
    server = RoutesReplaced(config=config_of(StockConfig), server_client=MagicMock(spec=ServerClient))
    with TestClient(server.setup_webserver()) as client:
        assert client.post("/verify", json={"b": 1, "a": 2}).json() == {"reward": 0.25, "keys": ["a", "b"]}
        assert client.post("/aggregate_metrics", json={"verify_responses": []}).json()["agent_metrics"] == {}
        assert set(server.events) == {"start", "begin"}


class GameServer(SimpleResourcesServer):
    """Makes its own application, as servers of games do."""

    config: BaseResourcesServerConfig

    def setup_webserver(self) -> FastAPI:
        app = FastAPI()
        self.setup_session_middleware(app)
        self.setup_session_middleware(app)
        app.add_middleware(RolloutContextMiddleware)
        app.post("/reset")(self.reset)
        app.post("/verify")(self.verify)
        app.post("/aggregate_metrics")(self.aggregate_metrics)
        return app

    async def reset(self, request: Request, body: dict[str, Any] = Body(default={})) -> dict[str, Any]:  # noqa: B008
        return {"id": request.session[SESSION_ID_KEY], "rollout": current_rollout_id(), "seed": body.get("seed")}

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        return BaseVerifyResponse(**body.model_dump(), reward=0.0)


def test_a_server_that_makes_its_own_application_has_sessions_and_rollouts():
    server = GameServer(config=config_of(BaseResourcesServerConfig), server_client=MagicMock(spec=ServerClient))
    client = TestClient(server.setup_webserver())
    state = client.post("/ng-rollout/4-1/reset", json={"seed": 3}).json()
    assert (state["rollout"], state["seed"]) == ("4-1", 3)
    assert client.post("/reset", json={}).json() == {"id": state["id"], "rollout": None, "seed": None}


def test_a_name_that_a_server_imported_can_be_replaced_in_its_module(judged):
    with patch.object(
        sys.modules[__name__], "call_judge", AsyncMock(return_value=response(message("[[A=B]]")))
    ) as replaced:
        assert asyncio.run(judged.verify(verify_request())).reward == 1.0
    assert replaced.await_args.kwargs["server_name"] == "judge"


def test_a_configuration_ignores_unknown_keys_and_is_a_plain_model():
    config = config_of(StockConfig, unknown_key=1, domain="math", num_workers=2)
    assert not hasattr(config, "unknown_key")
    assert json.loads(config.model_dump_json())["domain"] == "math"
    assert "REVERIFY_MODE" not in config.model_dump()
    with pytest.raises(ValidationError, match="mode"):
        config_of(StockConfig, mode="other")
