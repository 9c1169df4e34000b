"""Agents of NeMo Gym that only answer: the environment server `single_agent_turn` opens their sessions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hosted_agents import write_agent
from hosted_servers import TYPED, row, write_server

import ludus
from ludus import Request, Response, ScriptedModel
from ludus.response import function_call

pytest.importorskip("fastapi", reason="needs FastAPI: pip install 'ludus-nemo-gym[servers]'")

#: Keeps its tools' address in a session, and has no `/run`.
ANSWERING = """
import json
from dataclasses import dataclass, field
from pathlib import Path

from fastapi import Body, Request
from nemo_gym.base_responses_api_agent import (
    AgentCloseSessionResponse,
    AgentSessionState,
    BaseResponsesAPIAgentConfig,
    SimpleResponsesAPIAgent,
)
from nemo_gym.config_types import ModelServerRef
from nemo_gym.openai_utils import (
    NeMoGymEasyInputMessage,
    NeMoGymFunctionCallOutput,
    NeMoGymResponse,
    NeMoGymResponseCreateParamsNonStreaming,
)
from nemo_gym.server_utils import get_response_json, raise_for_status, request as send


class Config(BaseResponsesAPIAgentConfig):
    model_server: ModelServerRef


@dataclass
class State(AgentSessionState):
    cookies: dict = field(default_factory=dict)


class Agent(SimpleResponsesAPIAgent):
    config: Config

    async def _seed_agent_session_state(self, body):
        return State(body, dict(body.tool_accesses[0].cookies))

    async def _close_agent_session_state(self, state):
        Path(__file__).with_name(f"closed_{state.request.agent_session_id}").touch()
        return AgentCloseSessionResponse(
            agent_session_id=state.request.agent_session_id, resources_cookies=state.cookies
        )

    async def responses(
        self, request: Request, body: NeMoGymResponseCreateParamsNonStreaming = Body()
    ) -> NeMoGymResponse:
        state = self._require_agent_session(self._agent_session_id_from_request(request))
        (access,) = state.request.tool_accesses
        items = []
        while True:
            asked = [NeMoGymEasyInputMessage(role="user", content=body.input), *items]
            reply = await self.server_client.post(
                server_name=self.config.model_server.name,
                url_path=self.url_path_for_request("/v1/responses", request),
                json=body.model_copy(update={"input": asked}),
            )
            await raise_for_status(reply)
            answer = NeMoGymResponse.model_validate(await get_response_json(reply))
            items += answer.output
            calls = [item for item in answer.output if item.type == "function_call"]
            if not calls:
                return answer.model_copy(update={"output": items})
            for call in calls:
                url = f"{str(access.base_url).rstrip('/')}/{call.name}"
                got = await send("POST", url, json=json.loads(call.arguments), cookies=state.cookies)
                text = await got.text()
                items.append(NeMoGymFunctionCallOutput(call_id=call.call_id, output=text))

    async def run(self, body=None):
        raise AssertionError("an environment server never calls this")
"""
#: Tells the word of its own session to whoever has the session's cookie.
TELLING = TYPED.replace(
    "    async def close_resources_session(",
    """    def setup_webserver(self) -> FastAPI:
        app = super().setup_webserver()
        app.post("/word")(self.word)
        return app

    async def word(self, request: Request) -> dict:
        return {"word": self.words[request.session["mine"]]}

    async def close_resources_session(""",
)


def tell(request: Request) -> Response | str:
    """Ask the tool for the word, and repeat it."""
    if request.turn == 0:
        return Response.of(function_call("word", {}, call_id="c1"))
    return str(json.loads(request.input[-1]["output"])["word"])


def write_environment(root: Path, code: str, name: str, rows: list[dict[str, Any]]) -> Path:
    """A resources server, the agent, and the environment server between them; the folder of the resources."""
    write_agent(root, f"{name}_agent", ANSWERING)
    folder = write_server(root, name, code, rows, agent=f"{name}_agent")
    file = folder / "configs" / f"{name}.yaml"
    tree = json.loads(file.read_text())
    agent = tree[f"{name}_simple_agent"]["responses_api_agents"][f"{name}_agent"]
    front = {
        "entrypoint": "app.py",
        "resources_server": agent.pop("resources_server"),
        "agent_server": {"type": "responses_api_agents", "name": f"{name}_simple_agent"},
        "resources_tool_transports": ["direct_http"],
        "cleanup_timeout_seconds": 30,
    }
    file.write_text(json.dumps({**tree, f"{name}_turns": {"environment_servers": {"single_agent_turn": front}}}))
    return folder


@pytest.mark.parametrize("isolate", [True, False])
def test_an_agent_with_sessions_answers_and_calls_the_tools_of_its_resources(tmp_path: Path, isolate: bool) -> None:
    rows = [row("?", "word", word=word) for word in ("red", "green", "blue")]
    name = f"words_{isolate}".lower()
    folder = write_environment(tmp_path, TELLING, name, rows)
    settings = {"agent.isolate": isolate, "resources.isolate": isolate}
    results = ludus.collect(folder, model=ScriptedModel(tell), settings=settings)
    assert [(rollout.reward, rollout.error) for rollout in results.rollouts] == [(1.0, None)] * 3
    for rollout in results.rollouts:
        kinds = [item["type"] for item in rollout.response.output]
        assert kinds == ["function_call", "function_call_output", "message"]
        assert len(rollout.calls) == 2
    assert (folder / "closed").exists()
    assert len(list((tmp_path / "responses_api_agents" / f"{name}_agent").glob("closed_*"))) == 3


def test_an_answer_that_fails_closes_the_session_and_has_the_cause_of_the_model(tmp_path: Path) -> None:
    folder = write_environment(tmp_path, TELLING, "failing_words", [row("?", "word", word="red")])
    script = [{"error": {"kind": "http_400", "cause": "the prompt is too odd"}}]
    settings = {"agent.isolate": False, "resources.isolate": False}
    (rollout,) = ludus.collect(folder, model=ScriptedModel(script), settings=settings).rollouts
    assert (rollout.reward, rollout.error.stage, rollout.error.cause) == (None, "model", "the prompt is too odd")
    assert list((tmp_path / "responses_api_agents" / "failing_words_agent").glob("closed_*"))
