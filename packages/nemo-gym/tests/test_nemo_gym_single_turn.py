"""An environment server, an agent with sessions and a resources server play an episode together."""

from __future__ import annotations

from typing import Any
from unittest.mock import MagicMock

import pytest

pytest.importorskip("fastapi", reason="needs FastAPI: pip install 'ludus-nemo-gym[servers]'")

from nemo_gym.base_environment_server import BaseEnvironmentServer, BaseEnvironmentServerConfig, CleanupContext
from nemo_gym.base_resources_server import ResourcesSeedSessionResponse
from nemo_gym.base_responses_api_agent import AgentCloseSessionResponse
from nemo_gym.config_types import AggregateMetrics, AggregateMetricsRequest
from nemo_gym.server_utils import ServerClient, get_response_json, raise_for_status
from nemo_gym.single_agent_turn_types import SingleAgentTurnRequest, SingleAgentTurnResponse, SingleAgentTurnResult
from test_nemo_gym_agent_sessions import agent
from test_nemo_gym_agents import Wired
from test_nemo_gym_environment_servers import REQUEST
from test_nemo_gym_mcp import weather


class TurnServer(BaseEnvironmentServer[SingleAgentTurnRequest, SingleAgentTurnResponse]):
    """The six steps of an episode in which one agent answers once."""

    request_model = SingleAgentTurnRequest
    response_model = SingleAgentTurnResponse

    config: BaseEnvironmentServerConfig
    closed: list[str] = []

    async def ask(self, server: str, path: str, body: Any, cookies: Any = None) -> tuple[dict[str, Any], Any]:
        reply = await self.server_client.post(server_name=server, url_path=path, json=body, cookies=cookies)
        await raise_for_status(reply)
        return await get_response_json(reply), reply.cookies

    async def run(self, request: SingleAgentTurnRequest, cleanup: CleanupContext) -> SingleAgentTurnResponse:
        episode = request.episode_id.model_dump()
        task = request.task.task_input
        ids = {"episode_id": episode, "task_id": request.task.task_id.model_dump()}
        own = {"resources_session_id": "r1"}
        seeded, cookies = await self.ask("weather", "/seed_session", {**ids, **own, "task_data": task.task_data})
        ResourcesSeedSessionResponse.model_validate(seeded)

        async def close_resources() -> None:
            await self.ask("weather", "/close_session", {**own, "episode_id": episode}, cookies)
            self.closed.append("resources")

        cleanup.register_cleanup("resources session", close_resources)
        session = {"agent_session_id": "a1"}
        _, agent_cookies = await self.ask("notes", "/v1/agent_sessions", {**ids, **session})
        closing: list[AgentCloseSessionResponse] = []

        async def close_agent() -> None:
            body = {**session, "episode_id": episode}
            answer, _ = await self.ask("notes", "/v1/agent_sessions/close", body, agent_cookies)
            closing.append(AgentCloseSessionResponse.model_validate(answer))
            self.closed.append("agent")

        agent_session = cleanup.register_cleanup("agent session", close_agent)
        path = f"/ng-rollout/{request.episode_id.capture_key}/v1/responses"
        answer, _ = await self.ask("notes", path, task.responses_create_params, agent_cookies)
        await agent_session.close()
        row = {**task.task_data, "responses_create_params": task.responses_create_params.model_dump(exclude_unset=True)}
        verdict, _ = await self.ask("weather", "/verify", {**row, "response": answer}, cookies)
        observed = {"ng_agent_observations": closing[0].agent_observations, "notes": closing[0].resources_cookies}
        result = SingleAgentTurnResult.model_validate({**verdict, **observed})
        return SingleAgentTurnResponse(episode_id=request.episode_id, task_id=request.task.task_id, result=result)

    async def aggregate_metrics(self, body: AggregateMetricsRequest) -> AggregateMetrics:
        return AggregateMetrics()


def turn_server(**apps: Any) -> TurnServer:
    config = BaseEnvironmentServerConfig(
        host="127.0.0.1", port=1, entrypoint="app.py", name="turn", cleanup_timeout_seconds=5
    )
    server = TurnServer(config=config, server_client=MagicMock(spec=ServerClient))
    object.__setattr__(server, "server_client", Wired(**apps))
    return server


async def test_an_episode_opens_and_closes_the_sessions_of_both_servers():
    notes = agent()
    server = turn_server(weather=weather().setup_webserver(), notes=notes.setup_webserver())
    response = await server.run_request(SingleAgentTurnRequest.model_validate(REQUEST))
    assert response.result is not None, response.failure
    assert response.result.reward == 0.0, "the agent called no tool"
    assert "count" in response.result.model_extra["notes"]["notes"]
    assert (notes.opened, notes.closed, server.closed) == (["a1"], ["a1"], ["agent", "resources"])


async def test_an_episode_that_fails_closes_both_sessions():
    broken = agent()
    app = broken.setup_webserver()
    server = turn_server(weather=weather().setup_webserver(), notes=app)
    row = {"responses_create_params": {"input": [], "temperature": 0.0}}
    broken.broken = "open"
    request = {**REQUEST, "task": {**REQUEST["task"], "task_input": row}}
    response = await server.run_request(SingleAgentTurnRequest.model_validate(request))
    assert response.failure is not None
    assert (response.failure.terminal, response.failure.failure_reason) == (True, "no room")
    assert server.closed == ["resources"]
