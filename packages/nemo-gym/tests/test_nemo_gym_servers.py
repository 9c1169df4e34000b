"""Resources servers as authors write them for NeMo Gym run on the classes of this package."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import signal
import subprocess
import sys
import urllib.request
from abc import ABC
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Generic, TypeVar
from unittest.mock import AsyncMock, MagicMock

import pytest
from pydantic import ConfigDict, Field, PrivateAttr
from waiting import CEILING, until

pytest.importorskip("fastapi", reason="needs FastAPI: pip install 'ludus-nemo-gym[servers]'")

from fastapi import FastAPI, HTTPException, Request
from fastapi.testclient import TestClient
from nemo_gym.base_resources_server import (
    AggregateMetricsRequest,
    BaseResourcesServerConfig,
    BaseRunRequest,
    BaseSeedSessionRequest,
    BaseSeedSessionResponse,
    BaseVerifyRequest,
    BaseVerifyResponse,
    ReverifyMode,
    SimpleResourcesServer,
    normalize_tool_name,
)
from nemo_gym.config_types import ModelServerRef
from nemo_gym.judge import JudgeError, call_judge, judge_failsafe, reraise_judge_errors
from nemo_gym.openai_utils import NeMoGymResponse
from nemo_gym.server_utils import (
    SESSION_ID_KEY,
    ServerClient,
    apply_rollout_prefix,
    get_response_json,
    raise_for_status,
    rollout_path_prefix,
)

ANSWER = {
    "id": "resp_1",
    "created_at": 1,
    "model": "m",
    "object": "response",
    "output": [
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "done", "annotations": []}],
        }
    ],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}
ROW = {"responses_create_params": {"input": [{"role": "user", "content": "count"}]}}


class CounterConfig(BaseResourcesServerConfig):
    REVERIFY_MODE = ReverifyMode.UNSUPPORTED

    step: int = 1
    judge_model_server: ModelServerRef | None = None


class CounterSeedRequest(BaseSeedSessionRequest):
    initial_count: int


class CounterRunRequest(BaseRunRequest):
    model_config = ConfigDict(extra="allow")

    expected_count: int


class CounterVerifyRequest(CounterRunRequest, BaseVerifyRequest):
    pass


class CounterVerifyResponse(BaseVerifyResponse):
    model_config = ConfigDict(extra="allow")

    count: int


class Increment(BaseSeedSessionRequest):
    count: int


class CounterServer(SimpleResourcesServer):
    config: CounterConfig
    counts: dict[str, int] = Field(default_factory=dict)
    _started: bool = PrivateAttr(default=False)

    def model_post_init(self, context: Any) -> None:
        self._started = True

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/increment_counter")(self.increment_counter)
        app.post("/read_counter")(self.read_counter)
        app.post("/break")(self.raises)
        app.post("/refuse")(self.refuses)
        app.post("/{tool_name}")(self.any_tool)
        return app

    async def seed_session(self, request: Request, body: CounterSeedRequest) -> BaseSeedSessionResponse:
        self.counts[request.session[SESSION_ID_KEY]] = body.initial_count
        return BaseSeedSessionResponse()

    async def increment_counter(self, request: Request, body: Increment) -> dict[str, bool]:
        self.counts[request.session[SESSION_ID_KEY]] += body.count * self.config.step
        return {"success": True}

    def read_counter(self, request: Request) -> int:
        return self.counts[request.session[SESSION_ID_KEY]]

    async def raises(self) -> None:
        raise ValueError("no such counter")

    async def refuses(self) -> None:
        raise HTTPException(status_code=418, detail="no coffee")

    async def any_tool(self, tool_name: str) -> dict[str, str]:
        return {"unknown": tool_name}

    async def verify(self, request: Request, body: CounterVerifyRequest) -> CounterVerifyResponse:
        count = self.counts.pop(request.session[SESSION_ID_KEY])
        return CounterVerifyResponse(**body.model_dump(), reward=float(count == body.expected_count), count=count)

    def compute_metrics(self, tasks: list[list[dict[str, Any]]]) -> dict[str, Any]:
        return {"tasks_seen": len(tasks)}


def server(kind: Any = CounterServer, config: Any = CounterConfig, **settings: Any) -> Any:
    made = config(host="127.0.0.1", port=1, entrypoint="app.py", name="counter", **settings)
    return kind(config=made, server_client=MagicMock(spec=ServerClient))


def client(kind: Any = CounterServer, config: Any = CounterConfig, **settings: Any) -> TestClient:
    made = server(kind, config, **settings)
    app = made.setup_webserver()
    made.setup_exception_middleware(app)
    return TestClient(app)


def test_a_session_has_its_own_state_and_verify_judges_it():
    app = server(step=2).setup_webserver()
    one, two = TestClient(app), TestClient(app)
    for session, start in ((one, 0), (two, 10)):
        assert session.post("/seed_session", json={**ROW, "initial_count": start}).json() == {}
    assert one.post("/increment_counter", json={"count": 3}).json() == {"success": True}
    assert (one.post("/read_counter").json(), two.post("/read_counter").json()) == (6, 10)
    verdict = one.post("/verify", json={**ROW, "response": ANSWER, "expected_count": 6, "extra": "kept"})
    assert verdict.status_code == 200, verdict.text
    row = verdict.json()
    assert (row["reward"], row["count"], row["extra"], row["mask_sample"]) == (1.0, 6, "kept", False)
    assert row["response"]["output"][0]["content"][0]["text"] == "done"
    assert "_ng_rollout_id" not in row


def test_the_cookie_is_named_after_class_and_instance():
    reply = client().post("/seed_session", json={"initial_count": 1})
    assert list(reply.cookies) == ["CounterServer___counter"]


def test_what_a_tool_raises_is_the_text_of_a_500_and_an_http_exception_keeps_its_status():
    session = client()
    session.post("/seed_session", json={"initial_count": 1})
    assert (session.post("/break").status_code, session.post("/break").json()) == (500, "ValueError('no such counter')")
    assert (session.post("/refuse").status_code, session.post("/refuse").json()) == (418, {"detail": "no coffee"})


def test_a_catch_all_route_is_tried_after_the_routes_of_the_base_class():
    session = client()
    assert session.post("/other").json() == {"unknown": "other"}
    assert session.post("/seed_session", json={}).status_code == 422
    assert session.get("/reverify_mode").json() == "unsupported"


def test_an_unknown_key_of_the_request_is_refused_and_one_of_the_row_is_not():
    session = client()
    session.post("/seed_session", json={"initial_count": 1})
    bad = {"responses_create_params": {**ROW["responses_create_params"], "temprature": 1}}
    assert session.post("/verify", json={**bad, "response": ANSWER, "expected_count": 1}).status_code == 422


async def test_metrics_of_the_class_are_merged_with_those_of_the_rewards():
    rows = [{"_ng_task_index": task, "_ng_rollout_index": 0, "reward": reward} for task, reward in ((0, 1.0), (1, 0.0))]
    metrics = await server().aggregate_metrics(AggregateMetricsRequest(verify_responses=rows))
    assert metrics.agent_metrics["mean/reward"] == 0.5
    assert metrics.agent_metrics["tasks_seen"] == 2
    assert metrics.key_metrics["mean/reward"] == 0.5


def test_a_rollout_prefix_is_taken_off_the_path():
    session = client()
    assert session.post("/ng-rollout/7-0/seed_session", json={"initial_count": 4}).status_code == 200
    assert session.post("/ng-rollout/7-0/read_counter").json() == 4


class Judged(SimpleResourcesServer):
    config: CounterConfig

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        judged = await call_judge(
            self.server_client,
            server_name="judge",
            url_path="/v1/responses",
            json={"input": body.response.output_text},
            response_model=NeMoGymResponse,
        )
        return BaseVerifyResponse(**body.model_dump(), reward=float(judged.output_text == "done"))


def judge_reply(status: int, body: Any) -> Any:
    reply = MagicMock(ok=status < 400, status=status, cookies={})
    reply.read = AsyncMock(return_value=json.dumps(body).encode())
    return reply


@pytest.mark.parametrize(
    ("reply", "reward", "failure"),
    [
        (judge_reply(200, ANSWER), 1.0, None),
        (judge_reply(500, "down"), 0.0, "judge_failed"),
        (judge_reply(200, {"no": "response"}), 0.0, "judge_failed"),
    ],
)
def test_a_failed_judge_is_a_named_failure_and_no_verdict(reply, reward, failure):
    judged = server(Judged)
    judged.server_client.post = AsyncMock(return_value=reply)
    answer = TestClient(judged.setup_webserver()).post("/verify", json={**ROW, "response": ANSWER}).json()
    assert (answer["reward"], answer.get("_ng_failure_class")) == (reward, failure)
    assert answer["mask_sample"] is (failure is not None)
    assert answer.get("instance_config") == ({"mask_sample": True} if failure else None)
    assert judged.server_client.post.await_args.kwargs.keys() == {"server_name", "url_path", "json"}


async def test_whatever_a_judge_raises_is_a_judge_error():
    async def fails() -> None:
        raise KeyError("verdict")

    with pytest.raises(JudgeError, match="KeyError: 'verdict'"):
        await reraise_judge_errors(fails())


async def test_the_failsafe_of_a_verifier_finds_the_body_among_its_arguments():
    async def verify(request: object, body: object) -> None:
        raise JudgeError("down")

    body = BaseVerifyRequest.model_validate({**ROW, "response": ANSWER})
    double = SimpleNamespace(response=body.response, model_dump=lambda **options: {"question": "2+2"})
    for arguments, kept in (((MagicMock(), body), "responses_create_params"), ((object(), double), "question")):
        reply = await judge_failsafe(verify)(*arguments)
        failed = json.loads(reply.body)
        assert (reply.status_code, failed["_ng_failure_judge_error"], kept in failed) == (200, "down", True)
    for other in (object(), BaseSeedSessionRequest()):
        with pytest.raises(RuntimeError, match="body of a request"):
            await judge_failsafe(verify)(object(), body=other)


T = TypeVar("T")


class Base(SimpleResourcesServer, Generic[T], ABC):
    config: CounterConfig

    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        inner = app.router.lifespan_context

        @asynccontextmanager
        async def opened(app: FastAPI) -> AsyncIterator[None]:
            async with inner(app):
                app.state.opened = True
                yield
                app.state.opened = False

        app.router.lifespan_context = opened
        return app

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        return BaseVerifyResponse(**body.model_dump(), reward=self.score())

    def score(self) -> float:
        return 0.0


class Middle(Base[int]):
    def score(self) -> float:
        return 0.5


class Leaf(Middle):
    def __init__(self, **values: Any) -> None:
        super().__init__(**values)
        object.__setattr__(self, "_bonus", 0.25)

    def score(self) -> float:
        return super().score() + self._bonus  # type: ignore[attr-defined,no-any-return]


def test_several_levels_of_inheritance_and_a_lifespan_work():
    app = server(Leaf).setup_webserver()
    with TestClient(app) as session:
        assert app.state.opened is True
        assert session.post("/verify", json={**ROW, "response": ANSWER}).json()["reward"] == 0.75
        assert session.post("/seed_session", json={**ROW}).json() == {}
    assert app.state.opened is False


def test_a_class_without_verify_cannot_be_made():
    class Nothing(SimpleResourcesServer):
        config: CounterConfig

    with pytest.raises(TypeError, match="verify"):
        server(Nothing)


async def test_helpers_read_what_authors_mock():
    assert await get_response_json(judge_reply(200, {"a": 1})) == {"a": 1}
    await raise_for_status(AsyncMock())
    from aiohttp import ClientResponseError

    with pytest.raises(ClientResponseError) as error:
        await raise_for_status(judge_reply(503, {"detail": "busy"}))
    assert error.value.status == 503
    again = pickle.loads(pickle.dumps(error.value))
    assert again.response_content == b'{"detail": "busy"}'


async def test_an_error_is_raised_for_test_doubles_that_offer_one_way_to_read_a_body():
    from aiohttp import ClientResponseError

    double = MagicMock(ok=False, status=503)
    double.content.read = AsyncMock(return_value=b"busy")
    with pytest.raises(ClientResponseError) as raised:
        await raise_for_status(double)
    assert (raised.value.status, raised.value.response_content) == (503, b"busy")
    with pytest.raises(ZeroDivisionError):
        await raise_for_status(MagicMock(ok=False, raise_for_status=MagicMock(side_effect=ZeroDivisionError)))


@pytest.mark.parametrize(
    ("name", "of", "tool"),
    [
        ("mcp__shop__buy", "shop", "buy"),
        ("mcp__shop__buy", "other", "mcp__shop__buy"),
        ("mcp__a__b__c", None, "b__c"),
        ("buy", None, "buy"),
        ("mcp__buy", None, "mcp__buy"),
    ],
)
def test_tool_names_lose_the_prefix_of_their_server(name, of, tool):
    assert normalize_tool_name(name, of) == tool


def test_paths_of_a_rollout():
    assert rollout_path_prefix(None) == ""
    assert rollout_path_prefix("7-0", token_capture=True) == "/ng-rollout/7-0/training-token-capture"
    assert apply_rollout_prefix("http://127.0.0.1:1/v1", "7-0") == "http://127.0.0.1:1/v1/ng-rollout/7-0"


APP = """
from nemo_gym.base_resources_server import BaseVerifyRequest, BaseVerifyResponse
from nemo_gym.base_resources_server import BaseResourcesServerConfig, SimpleResourcesServer

class AlwaysRight(SimpleResourcesServer):
    config: BaseResourcesServerConfig

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        return BaseVerifyResponse(**body.model_dump(), reward=1.0)

if __name__ == "__main__":
    AlwaysRight.run_webserver()
"""


def test_run_webserver_serves_the_instance_that_the_environment_names(tmp_path: Path):
    from nemo_gym.global_config import find_open_port

    port = find_open_port()
    (tmp_path / "app.py").write_text(APP)
    block = {"entrypoint": "app.py", "host": "127.0.0.1", "port": port}
    tree = {"right": {"resources_servers": {"right": block}}, "head_server": {"host": "127.0.0.1", "port": 1}}
    names = {"NEMO_GYM_CONFIG_DICT": json.dumps(tree), "NEMO_GYM_CONFIG_PATH": "right"}
    running = subprocess.Popen([sys.executable, "app.py"], cwd=tmp_path, env={**os.environ, **names})

    def answers() -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health") as reply:
                return bool(json.loads(reply.read()) == {"status": "ok"})
        except OSError:
            return False

    try:
        until(answers)
        body = json.dumps({**ROW, "response": ANSWER}).encode()
        asked = urllib.request.Request(
            f"http://127.0.0.1:{port}/verify", body, {"Content-Type": "application/json"}, method="POST"
        )
        with urllib.request.urlopen(asked) as reply:
            assert json.loads(reply.read())["reward"] == 1.0
    finally:
        running.send_signal(signal.SIGTERM)
        assert running.wait(CEILING) == 0


def test_importing_the_package_imports_no_server_module():
    code = "import nemo_gym, sys; assert 'nemo_gym.server_utils' not in sys.modules; nemo_gym.SimpleResourcesServer"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0
    import nemo_gym

    assert nemo_gym.__all__ == sorted(nemo_gym.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        nemo_gym.Nothing  # noqa: B018


def test_the_shared_client_belongs_to_its_event_loop():
    from nemo_gym.server_utils import get_global_aiohttp_client

    async def made() -> Any:
        client = get_global_aiohttp_client()
        assert get_global_aiohttp_client() is client
        await client.close()
        return client

    assert asyncio.run(made()) is not asyncio.run(made())
