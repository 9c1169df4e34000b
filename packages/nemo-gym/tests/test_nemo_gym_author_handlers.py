"""Handlers that are no plain coroutine functions, and fields that are no pydantic types: authors write both."""

import asyncio
import functools
from unittest.mock import MagicMock

import pytest

pytest.importorskip("fastapi", reason="servers need the extra `servers`")

from fastapi.testclient import TestClient
from nemo_gym.base_resources_server import (
    BaseResourcesServerConfig,
    BaseRunRequest,
    BaseVerifyRequest,
    BaseVerifyResponse,
    SimpleResourcesServer,
)
from nemo_gym.base_responses_api_agent import BaseResponsesAPIAgentConfig, SimpleResponsesAPIAgent
from nemo_gym.judge import JudgeError
from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.server_utils import ServerClient
from pydantic import Field

RESPONSE = {
    "id": "r",
    "created_at": 0,
    "model": "m",
    "object": "response",
    "output": [],
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [],
}
ROW = {"responses_create_params": {"input": "q"}}
PLACE = {"host": "127.0.0.1", "port": 1, "entrypoint": "app.py", "name": "mine"}


def logged(method):
    """A decorator of an author, which hides that the method is a coroutine function."""

    @functools.wraps(method)
    def call(*args, **kwargs):
        return method(*args, **kwargs)

    return call


class Decorated(SimpleResourcesServer):
    config: BaseResourcesServerConfig
    lock: asyncio.Lock = Field(default_factory=asyncio.Lock)
    judge_is_down: bool = False

    @logged
    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        if self.judge_is_down:
            raise JudgeError("down")
        return BaseVerifyResponse(**body.model_dump(), reward=1.0)


class PlainAgent(SimpleResponsesAPIAgent):
    config: BaseResponsesAPIAgentConfig

    def responses(self, body: NeMoGymResponseCreateParamsNonStreaming) -> NeMoGymResponse:
        return NeMoGymResponse(**RESPONSE)

    def run(self, body: BaseRunRequest) -> BaseVerifyResponse:
        return BaseVerifyResponse(
            **body.model_dump(), response=self.responses(body.responses_create_params), reward=0.5
        )


def test_a_decorated_verifier_gives_its_verdict_and_its_judges_failure():
    server = Decorated(config=BaseResourcesServerConfig(**PLACE), server_client=MagicMock(spec=ServerClient))
    client = TestClient(server.setup_webserver())
    assert client.post("/verify", json={**ROW, "response": RESPONSE}).json()["reward"] == 1.0
    server.judge_is_down = True
    assert client.post("/verify", json={**ROW, "response": RESPONSE}).json()["_ng_failure_class"] == "judge_failed"


def test_an_agent_of_plain_functions_plays_a_row():
    agent = PlainAgent(config=BaseResponsesAPIAgentConfig(**PLACE), server_client=MagicMock(spec=ServerClient))
    assert TestClient(agent.setup_webserver()).post("/run", json=ROW).json()["reward"] == 0.5
