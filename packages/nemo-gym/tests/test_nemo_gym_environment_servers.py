"""Environment servers as authors write them for NeMo Gym run on the classes of this package."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from unittest.mock import MagicMock

import pytest
from pydantic import ValidationError

pytest.importorskip("fastapi", reason="needs FastAPI: pip install 'ludus-nemo-gym[servers]'")

from fastapi import HTTPException
from fastapi.testclient import TestClient
from nemo_gym.base_environment_server import (
    BaseEnvironmentServer,
    BaseEnvironmentServerConfig,
    CleanupContext,
    HandledEpisodeError,
)
from nemo_gym.base_resources_server import (
    ResourcesCloseSessionRequest,
    ResourcesCloseSessionResponse,
    ResourcesSeedSessionRequest,
    ResourcesSeedSessionResponse,
    SimpleResourcesServer,
)
from nemo_gym.config_types import AggregateMetrics, AggregateMetricsRequest
from nemo_gym.episode_types import EpisodeFailure
from nemo_gym.openai_utils import NeMoGymResponse
from nemo_gym.rollout_correlation import current_rollout_id
from nemo_gym.server_utils import ServerClient
from nemo_gym.single_agent_turn_types import (
    SingleAgentTurnFailure,
    SingleAgentTurnRequest,
    SingleAgentTurnResponse,
    SingleAgentTurnResult,
    SingleAgentTurnTaskInput,
)
from nemo_gym.testing.session_conformance import check_resources_session_contract
from test_nemo_gym_servers import ANSWER, ROW, CounterServer, server

EPISODE = {"rollout_id": "7-1", "attempt": 2}
TASK = {"taskset": "counting", "task_id": "seven"}
REQUEST = {"episode_id": EPISODE, "task": {"task_id": TASK, "task_input": {**ROW, "expected_count": 5}}}

Play = Callable[[SingleAgentTurnRequest, CleanupContext], Awaitable[SingleAgentTurnResponse]]


class PlayingServer(BaseEnvironmentServer[SingleAgentTurnRequest, SingleAgentTurnResponse]):
    request_model = SingleAgentTurnRequest
    response_model = SingleAgentTurnResponse

    config: BaseEnvironmentServerConfig
    play: Any = None

    async def run(self, request: SingleAgentTurnRequest, cleanup: CleanupContext) -> SingleAgentTurnResponse:
        played: SingleAgentTurnResponse = await self.play(request, cleanup)
        return played

    async def aggregate_metrics(self, body: AggregateMetricsRequest) -> AggregateMetrics:
        return AggregateMetrics(agent_metrics={"rollouts": len(body.verify_responses)})


def environment(play: Play, **settings: Any) -> PlayingServer:
    limits = {"cleanup_timeout_seconds": 5, **settings}
    config = BaseEnvironmentServerConfig(host="127.0.0.1", port=1, entrypoint="app.py", name="env", **limits)
    return PlayingServer(config=config, server_client=MagicMock(spec=ServerClient), play=play)


def request(**changes: Any) -> SingleAgentTurnRequest:
    return SingleAgentTurnRequest.model_validate({**REQUEST, **changes})


def ended(asked: SingleAgentTurnRequest, **fields: Any) -> SingleAgentTurnResponse:
    verdict = {**asked.task.task_input.model_dump(), "response": ANSWER, "reward": 1.0, **fields}
    result = SingleAgentTurnResult.model_validate(verdict)
    return SingleAgentTurnResponse(episode_id=asked.episode_id, task_id=asked.task.task_id, result=result)


async def answer(asked: SingleAgentTurnRequest, cleanup: CleanupContext) -> SingleAgentTurnResponse:
    return ended(asked, seen=current_rollout_id())


async def test_an_episode_is_played_in_the_context_of_its_rollout():
    response = await environment(answer).run_request(request())
    assert response.result is not None
    assert (response.result.reward, response.result.model_extra["seen"]) == (1.0, "7-1-a2")


def test_run_and_metrics_are_typed_routes():
    client = TestClient(environment(answer).setup_webserver())
    reply = client.post("/run", json=REQUEST)
    assert reply.status_code == 200, reply.text
    assert reply.json()["result"]["reward"] == 1.0
    assert client.post("/run", json=ROW).status_code == 422
    assert client.post("/aggregate_metrics", json={"verify_responses": [{}]}).json()["agent_metrics"]["rollouts"] == 1


async def test_errors_of_an_episode_are_failures_and_cancellation_is_not():
    async def crash(asked: Any, cleanup: Any) -> Any:
        raise OSError("the disk is full")

    async def handled(asked: Any, cleanup: Any) -> Any:
        partial = NeMoGymResponse.model_validate(ANSWER)
        failure = SingleAgentTurnFailure(
            failure_reason="no answer", terminal=False, stage="agent", partial_response=partial
        )
        raise HandledEpisodeError(failure)

    async def cancelled(asked: Any, cleanup: Any) -> Any:
        raise asyncio.CancelledError

    crashed = (await environment(crash).run_request(request())).failure
    assert crashed == SingleAgentTurnFailure(failure_reason="the disk is full", terminal=True)
    failure = (await environment(handled).run_request(request())).failure
    assert failure is not None
    assert failure.partial_response is not None
    assert (failure.terminal, failure.stage) == (False, "agent")
    with pytest.raises(asyncio.CancelledError):
        await environment(cancelled).run_request(request())


async def test_an_episode_that_takes_too_long_is_a_failure_that_may_be_tried_again():
    async def hang(asked: Any, cleanup: Any) -> Any:
        await asyncio.Event().wait()

    async def inner_timeout(asked: Any, cleanup: Any) -> Any:
        raise TimeoutError("the model took too long")

    failure = (await environment(hang, default_episode_timeout_seconds=0.01).run_request(request())).failure
    assert failure is not None
    assert (failure.terminal, "0.01 s" in failure.failure_reason) == (False, True)
    own = (await environment(inner_timeout, default_episode_timeout_seconds=60).run_request(request())).failure
    assert own is not None
    assert (own.terminal, own.failure_reason) == (True, "the model took too long")


async def test_an_episode_without_a_place_fails_at_admission():
    release = asyncio.Event()

    async def wait(asked: Any, cleanup: Any) -> Any:
        await release.wait()
        return ended(asked)

    env = environment(wait, max_concurrent_episodes=1, queue_timeout_seconds=0.01)
    first = asyncio.create_task(env.run_request(request()))
    await asyncio.sleep(0)
    refused = (await env.run_request(request())).failure
    assert refused is not None
    assert (refused.stage, refused.terminal) == ("admission", False)
    release.set()
    assert (await first).result is not None
    assert (await env.run_request(request())).result is not None


async def test_an_answer_with_another_id_is_an_error():
    async def mixed_up(asked: Any, cleanup: Any) -> Any:
        return ended(request(episode_id={"rollout_id": "8-1"}))

    with pytest.raises(ValueError, match="episode_id"):
        await environment(mixed_up).run_request(request())


async def test_cleanups_run_once_in_reverse_order_also_for_a_cancelled_episode():
    ran: list[str] = []
    started = asyncio.Event()

    async def play(asked: Any, cleanup: CleanupContext) -> Any:
        async def release(name: str) -> None:
            await asyncio.sleep(0)
            ran.append(name)

        def broken() -> None:
            raise OSError("cannot release")

        early = cleanup.register_cleanup("early", lambda: release("early"))
        cleanup.register_cleanup("first", lambda: release("first"))
        cleanup.register_cleanup("broken", broken)
        cleanup.register_cleanup("last", lambda: release("last"))
        await early.close()
        await early.close()
        started.set()
        await asyncio.Event().wait()

    episode = asyncio.create_task(environment(play).run_request(request()))
    await started.wait()
    episode.cancel()
    await asyncio.sleep(0)
    episode.cancel()  # while it cleans up
    with pytest.raises(asyncio.CancelledError):
        await episode
    assert ran == ["early", "last", "first"]


async def test_a_cleanup_that_hangs_ends_with_its_timeout(caplog: pytest.LogCaptureFixture):
    ran: list[str] = []

    async def play(asked: Any, cleanup: CleanupContext) -> Any:
        cleanup.register_cleanup("never run", lambda: ran.append("never run"))
        cleanup.register_cleanup("hanging", lambda: asyncio.Event().wait())
        return ended(asked)

    assert (await environment(play, cleanup_timeout_seconds=0.01).run_request(request())).result is not None
    await asyncio.sleep(0)
    assert ran == []
    assert "hanging" in caplog.text


async def test_a_handle_raises_what_its_callback_raises():
    def broken() -> None:
        raise HTTPException(409, "closed")

    cleanup = CleanupContext(5)
    handle = cleanup.register_cleanup("session", broken)
    with pytest.raises(HTTPException):
        await handle.close()
    await cleanup.aclose()


def test_the_settings_of_an_environment_server_are_checked():
    common = {"host": "127.0.0.1", "port": 1, "entrypoint": "app.py", "name": "env"}
    for wrong in (
        {},
        {"cleanup_timeout_seconds": 0},
        {"cleanup_timeout_seconds": 1, "max_concurrent_episodes": 1},
        {"cleanup_timeout_seconds": 1, "unknown": 1},
    ):
        with pytest.raises(ValidationError):
            BaseEnvironmentServerConfig.model_validate({**common, **wrong})


def test_flat_fields_of_an_input_belong_to_its_task_data():
    flat = SingleAgentTurnTaskInput.model_validate({**ROW, "a": 1, "task_data": {"a": 1, "b": 2}})
    assert flat.task_data == {"a": 1, "b": 2}
    assert SingleAgentTurnTaskInput.model_validate(flat.model_dump()) == flat
    with pytest.raises(ValidationError, match="'a' differs"):
        SingleAgentTurnTaskInput.model_validate({**ROW, "a": 1, "task_data": {"a": 2}})
    with pytest.raises(ValidationError, match="responses_create_params"):
        SingleAgentTurnTaskInput.model_validate({"a": 1})


def test_a_failure_may_be_of_the_base_class():
    response = SingleAgentTurnResponse.model_validate(
        {
            "episode_id": EPISODE,
            "task_id": TASK,
            "failure": EpisodeFailure(failure_reason="x", terminal=True).model_dump(),
        }
    )
    assert response.failure == SingleAgentTurnFailure(failure_reason="x", terminal=True)


SEED = ResourcesSeedSessionRequest.model_validate(
    {"resources_session_id": "r1", "episode_id": EPISODE, "task_id": TASK, "task_data": {}}
)


class StatefulServer(CounterServer):
    sessions: dict[str, bool] = {}

    async def seed_session(self, body: ResourcesSeedSessionRequest) -> ResourcesSeedSessionResponse:  # type: ignore[override]
        if self.sessions.setdefault(body.resources_session_id, True) is False:
            raise HTTPException(409, "closed")
        return ResourcesSeedSessionResponse(resources_session_id=body.resources_session_id)

    async def close_resources_session(self, body: ResourcesCloseSessionRequest) -> ResourcesCloseSessionResponse:
        self.sessions[body.resources_session_id] = False
        return ResourcesCloseSessionResponse(resources_session_id=body.resources_session_id)


class ForgetfulServer(CounterServer):
    seed_session = SimpleResourcesServer.seed_session  # type: ignore[assignment]


def test_the_contract_of_sessions_tells_a_server_that_keeps_it_from_one_that_does_not():
    check_resources_session_contract(server(StatefulServer).setup_webserver(), SEED, keeps_state=True)
    with pytest.raises(AssertionError, match="the first seed replied 422"):
        check_resources_session_contract(server().setup_webserver(), SEED, keeps_state=False)
    forgetful = server(ForgetfulServer).setup_webserver()
    check_resources_session_contract(forgetful, SEED, keeps_state=False)
    with pytest.raises(AssertionError, match="must be refused"):
        check_resources_session_contract(forgetful, SEED, keeps_state=True)
