"""Servers in the manner of authors whose tools, sandboxes, judges and middleware are their own, with their suites."""

from __future__ import annotations

import asyncio
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import AsyncMock, MagicMock, patch

import pytest
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

pytest.importorskip("fastapi", reason="needs FastAPI: pip install 'ludus-nemo-gym[servers]'")

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import PlainTextResponse
from fastapi.testclient import TestClient
from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseSeedSessionRequest,
    BaseSeedSessionResponse,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.config_types import AggregateMetricsRequest, ModelServerRef
from nemo_gym.failure_kinds import PROVIDER_UNAVAILABLE
from nemo_gym.global_config import get_global_config_dict
from nemo_gym.judge import JudgeError, reraise_judge_errors
from nemo_gym.openai_utils import (
    NeMoGymChatCompletion,
    NeMoGymChatCompletionCreateParamsNonStreaming,
    NeMoGymChatCompletionMessage,
    NeMoGymChoice,
    NeMoGymResponse,
)
from nemo_gym.prompt import PromptConfig, fill_prompt, load_prompt_config
from nemo_gym.sandbox import (
    AsyncSandbox,
    SandboxCreateError,
    SandboxExecResult,
    SandboxHandle,
    SandboxResources,
    SandboxSpec,
    SandboxStatus,
    register_provider,
    resolve_provider_config,
    resolve_provider_metadata,
)
from nemo_gym.sandbox.utils import cpu_cap_env
from nemo_gym.server_utils import SESSION_ID_KEY, ServerClient, get_response_json, raise_for_status
from starlette.middleware.base import BaseHTTPMiddleware

PARAMS = {"input": [{"role": "user", "content": "Do it."}]}


def response(text: str) -> NeMoGymResponse:
    part = {"type": "output_text", "text": text, "annotations": []}
    message = {"type": "message", "id": "m", "role": "assistant", "status": "completed", "content": [part]}
    return NeMoGymResponse(
        id="r",
        created_at=0.0,
        model="m",
        object="response",
        output=[message],
        parallel_tool_calls=True,
        tool_choice="auto",
        tools=[],
    )


def row(text: str, **fields: Any) -> dict[str, Any]:
    return {"responses_create_params": PARAMS, "response": response(text).model_dump(mode="json"), **fields}


def made(kind: type[SimpleResourcesServer], **settings: Any) -> Any:
    config: Any = kind.model_fields["config"].annotation
    return kind(
        config=config(host="", port=0, entrypoint="", name="it", **settings),
        server_client=MagicMock(spec=ServerClient),
    )


class InventorySeed(BaseSeedSessionRequest):
    stock: dict[str, int] = Field(default_factory=dict)


class Move(BaseModel):
    item: str
    count: int = Field(ge=1)


class InventoryRequest(BaseVerifyRequest):
    expected: dict[str, int]


class InventoryResponse(BaseVerifyResponse):
    final: dict[str, int]
    moves: int


class Inventory(SimpleResourcesServer):
    config: BaseResourcesServerConfig
    stocks: dict[str, dict[str, int]] = Field(default_factory=dict)

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.add_api_route("/take", self.take, methods=["POST"])
        return app

    async def seed_session(self, request: Request, body: InventorySeed) -> BaseSeedSessionResponse:
        self.stocks[request.session[SESSION_ID_KEY]] = dict(body.stock)
        return BaseSeedSessionResponse()

    def take(self, request: Request, body: Move) -> dict[str, int]:  # a sync handler, which runs in a thread
        stock = self.stocks.get(request.session[SESSION_ID_KEY])
        if stock is None:
            raise HTTPException(status_code=404, detail="unknown session")
        if stock.get(body.item, 0) < body.count:
            raise HTTPException(400, f"only {stock.get(body.item, 0)} {body.item}")
        stock[body.item] -= body.count
        request.session["moves"] = request.session.get("moves", 0) + 1
        return {"left": stock[body.item]}

    async def verify(self, request: Request, body: InventoryRequest) -> InventoryResponse:
        final = self.stocks.pop(request.session[SESSION_ID_KEY], {})
        reward = float(final == body.expected)
        return InventoryResponse(**body.model_dump(), final=final, moves=request.session.get("moves", 0), reward=reward)


def test_a_session_keeps_its_stock_and_its_own_keys():
    server = made(Inventory)
    app = server.setup_webserver()
    one, other = TestClient(app), TestClient(app)
    one.post("/seed_session", json={"stock": {"x": 3}, "a field of the row": 1})
    other.post("/seed_session", json={"stock": {"x": 1}})
    assert one.post("/take", json={"item": "x", "count": 2}).json() == {"left": 1}
    refused = other.post("/take", json={"item": "x", "count": 2})
    assert (refused.status_code, refused.json()) == (400, {"detail": "only 1 x"})
    assert TestClient(app).post("/take", json={"item": "x", "count": 1}).status_code == 404
    assert one.post("/take", json={"item": "x", "count": 0}).status_code == 422
    verdict = one.post("/verify", json=row("done", expected={"x": 1})).json()
    assert (verdict["reward"], verdict["moves"], verdict["final"]) == (1.0, 1, {"x": 1})
    assert len(server.stocks) == 1


class Stamp(BaseHTTPMiddleware):
    async def dispatch(self, request: Any, call_next: Any) -> Any:
        reply = await call_next(request)
        reply.headers["x-stamp"] = "1"
        return reply


class Guarded(SimpleResourcesServer):
    model_config = ConfigDict(arbitrary_types_allowed=True)

    config: BaseResourcesServerConfig
    pool: ThreadPoolExecutor | None = None
    _hits: list[str] = PrivateAttr(default_factory=list)

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        inner = app.router.lifespan_context

        @asynccontextmanager
        async def lifespan(app: FastAPI) -> Any:
            self.pool = ThreadPoolExecutor(1)
            async with inner(app) as state:
                yield state
            self.pool.shutdown()
            self.pool = None

        app.router.lifespan_context = lifespan
        app.add_middleware(Stamp)

        @app.middleware("http")
        async def count(request: Request, call_next: Any) -> Any:
            self._hits.append(request.url.path)
            return await call_next(request)

        @app.exception_handler(KeyError)
        async def refuse(request: Request, error: KeyError) -> PlainTextResponse:
            return PlainTextResponse(f"no tool {error.args[0]}", status_code=418)

        app.post("/{tool_name}")(self.call)
        return app

    async def call(self, tool_name: str, body: dict[str, Any]) -> PlainTextResponse:
        tool = {"square": lambda n: n * n}[tool_name]
        result = await asyncio.get_running_loop().run_in_executor(self.pool, lambda: tool(**body))
        return PlainTextResponse(json.dumps(result))

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        return BaseVerifyResponse(**body.model_dump(), reward=float("/square" in self._hits))


def test_middleware_handlers_of_errors_and_a_lifespan_work_together():
    server = made(Guarded)
    with TestClient(server.setup_webserver()) as client:
        assert client.post("/square", json={"n": 3}).text == "9"
        unknown = client.post("/cube", json={})
        assert (unknown.status_code, unknown.text, unknown.headers["x-stamp"]) == (418, "no tool cube", "1")
        assert client.post("/verify", json=row("")).json()["reward"] == 1.0
    assert server._hits == ["/square", "/cube", "/verify"]
    assert server.pool is None


class ChatJudgedConfig(BaseResourcesServerConfig):
    judge_model_server: ModelServerRef
    prompt_path: str
    judge_params: NeMoGymChatCompletionCreateParamsNonStreaming = NeMoGymChatCompletionCreateParamsNonStreaming(
        messages=[], temperature=0.0, max_tokens=16
    )


class ChatJudged(SimpleResourcesServer):
    config: ChatJudgedConfig
    _prompt: PromptConfig | None = PrivateAttr(default=None)

    def model_post_init(self, context: Any) -> None:
        super().model_post_init(context)
        self._prompt = load_prompt_config(self.config.prompt_path)

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        answer = await reraise_judge_errors(self._ask(body.response.output_text))
        text = answer.choices[0].message.content or ""
        return BaseVerifyResponse(**body.model_dump(), reward=float("YES" in text))

    async def _ask(self, text: str) -> NeMoGymChatCompletion:
        assert self._prompt is not None
        params = self.config.judge_params.model_copy(deep=True)
        params.messages = fill_prompt(self._prompt, {"text": text})
        reply = await self.server_client.post(
            server_name=self.config.judge_model_server.name, url_path="/v1/chat/completions", json=params
        )
        await raise_for_status(reply)
        return NeMoGymChatCompletion.model_validate(await get_response_json(reply))


@pytest.fixture
def judged(tmp_path: Any) -> ChatJudged:
    (tmp_path / "judge.yaml").write_text('system: You judge.\nuser: "Is {text} right? {{YES}} or {{NO}}"\n')
    server: ChatJudged = made(
        ChatJudged,
        judge_model_server={"type": "responses_api_models", "name": "judge"},
        prompt_path=str(tmp_path / "judge.yaml"),
    )
    return server


def chat_reply(text: str) -> AsyncMock:
    message = NeMoGymChatCompletionMessage(role="assistant", content=text, tool_calls=[])
    choices = [NeMoGymChoice(index=0, finish_reason="stop", message=message)]
    answer = NeMoGymChatCompletion(id="c", created=1, model="m", object="chat.completion", choices=choices)
    return AsyncMock(ok=True, status=200, read=AsyncMock(return_value=answer.model_dump_json().encode()))


@pytest.mark.parametrize(("said", "reward"), [("YES", 1.0), ("NO", 0.0), ("", 0.0)])
async def test_a_judge_that_speaks_chat_completions_is_asked_with_a_prompt_file(judged, said, reward):
    judged.server_client.post = AsyncMock(return_value=chat_reply(said))
    verdict = await judged.verify(BaseVerifyRequest(responses_create_params=PARAMS, response=response("4")))
    assert verdict.reward == reward
    sent = judged.server_client.post.await_args.kwargs["json"].model_dump(exclude_unset=True)
    system, user = sent.pop("messages")
    assert (system["content"], user["content"]) == ("You judge.", "Is 4 right? {YES} or {NO}")
    assert sent == {"temperature": 0.0, "max_tokens": 16}


async def test_a_judge_that_answers_without_a_choice_is_a_judge_error(judged):
    judged.server_client.post = AsyncMock(return_value=AsyncMock(read=AsyncMock(return_value=b'{"error": "busy"}')))
    with pytest.raises(JudgeError, match="ValidationError"):
        await judged.verify(BaseVerifyRequest(responses_create_params=PARAMS, response=response("4")))


class BoxedConfig(BaseResourcesServerConfig):
    sandbox_provider: str | dict[str, Any] = "box"


class Boxed(SimpleResourcesServer):
    config: BoxedConfig

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        named = self.config.sandbox_provider
        blocks = get_global_config_dict() if isinstance(named, str) else None
        spec = SandboxSpec(
            files={"main.py": body.response.output_text},
            env=cpu_cap_env(1.5),
            metadata=resolve_provider_metadata(named, blocks),
            resources=SandboxResources(cpu=1.5, memory_mib=512),
        )
        sandbox = AsyncSandbox(resolve_provider_config(named, blocks))
        try:
            await sandbox.start_with_setup(spec, lambda box: box.exec("true"))
        except SandboxCreateError as error:
            failure = {"mask_sample": True, "failure_kind": PROVIDER_UNAVAILABLE, "failure_reason": str(error)}
            return BaseVerifyResponse(**body.model_dump(), reward=0.0, **failure)
        try:
            ended = await sandbox.exec(f"{sys.executable} main.py", timeout_s=60)
        finally:
            await sandbox.stop()
        return BaseVerifyResponse(**body.model_dump(), reward=float(ended.return_code == 0))

    def compute_metrics(self, tasks: list[list[dict[str, Any]]]) -> dict[str, Any]:
        return {"rollouts": sum(map(len, tasks))}


class RecordingProvider:
    """A provider of a test suite: it notes every call."""

    name = "recording"
    calls: list[Any]
    spec: SandboxSpec

    def __init__(self, code: int = 0, quota: int = 1) -> None:
        self.code, self.quota = code, quota
        RecordingProvider.calls = []

    async def create(self, spec: SandboxSpec) -> SandboxHandle:
        if not self.quota:
            raise SandboxCreateError("the quota is spent")
        RecordingProvider.spec = spec
        self.calls.append("create")
        return SandboxHandle(sandbox_id="1", provider_name=self.name, raw=None)

    async def exec(self, handle, command, *, cwd=None, env=None, timeout_s=None, user=None) -> SandboxExecResult:
        self.calls.append((command.rpartition("/")[2], timeout_s))
        return SandboxExecResult(stdout="", stderr=None, return_code=0 if command == "true" else self.code)

    async def upload_file(self, handle, source_path, target_path) -> None:
        self.calls.append((target_path, source_path.read_text()))

    async def status(self, handle) -> SandboxStatus:
        return SandboxStatus.RUNNING

    async def close(self, handle) -> None:
        self.calls.append("close")

    async def aclose(self) -> None:
        self.calls.append("aclose")


@pytest.fixture(autouse=True)
def recording() -> None:
    register_provider("recording", RecordingProvider, override=True)


def asked(text: str = "pass") -> BaseVerifyRequest:
    return BaseVerifyRequest(responses_create_params=PARAMS, response=response(text))


async def test_a_sandbox_of_a_named_block_is_made_used_and_closed():
    block = {"box": {"recording": {"code": 3}, "default_metadata": {"team": "a"}}}
    with patch.object(sys.modules[__name__], "get_global_config_dict", return_value=block):
        verdict = await made(Boxed).verify(asked())
    program = f"{sys.executable.rpartition('/')[2]} main.py"
    assert RecordingProvider.calls == [
        *("create", ("main.py", "pass"), ("true", 180), (program, 60)),
        *("close", "aclose"),
    ]
    spec = RecordingProvider.spec
    assert (spec.metadata, spec.env["OMP_NUM_THREADS"], spec.resources.memory_mib) == ({"team": "a"}, "1", 512)
    assert verdict.reward == 0.0


async def test_a_provider_without_quota_masks_the_sample_and_metrics_leave_it_out():
    server = made(Boxed, sandbox_provider={"recording": {"quota": 0}})
    masked = await server.verify(asked())
    assert (masked.mask_sample, masked.failure_kind, masked.failure_reason) == (
        *(True, "provider_unavailable", "the quota is spent"),
    )
    rows = [
        {"_ng_task_index": 0, "_ng_rollout_index": index, **verdict.model_dump(include={"reward", "mask_sample"})}
        for index, verdict in enumerate([masked, BaseVerifyResponse(**row("x"), reward=1.0)])
    ]
    metrics = (await server.aggregate_metrics(AggregateMetricsRequest(verify_responses=rows))).agent_metrics
    assert (metrics["rollouts"], metrics["mean/reward"], metrics["coverage/masked_rollouts"]) == (1, 1.0, 1)


@pytest.mark.parametrize(("program", "reward"), [("pass", 1.0), ("raise SystemExit(2)", 0.0)])
async def test_a_program_runs_on_the_host_with_the_local_provider(program, reward):
    assert (await made(Boxed, sandbox_provider={"local": {}}).verify(asked(program))).reward == reward
