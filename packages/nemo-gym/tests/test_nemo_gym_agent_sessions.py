"""Agents with sessions: opened once, used by their cookie, closed once, however often a request is repeated."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any
from unittest.mock import MagicMock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

pytest.importorskip("fastapi", reason="needs FastAPI: pip install 'ludus-nemo-gym[servers]'")

from fastapi import HTTPException, Request
from fastapi.testclient import TestClient
from nemo_gym.base_resources_server import BaseRunRequest, BaseVerifyResponse
from nemo_gym.base_responses_api_agent import (
    AGENT_SESSION_COOKIE_KEY,
    AgentCloseSessionRequest,
    AgentCloseSessionResponse,
    AgentSeedSessionRequest,
    AgentSessionSetupError,
    AgentSessionState,
    BaseResponsesAPIAgentConfig,
    Body,
    SimpleResponsesAPIAgent,
)
from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.server_utils import ServerClient
from test_nemo_gym_servers import ANSWER

EPISODE = {"rollout_id": "7-1", "attempt": 0}
TASK = {"taskset": "counting", "task_id": "seven"}
SEED = {"agent_session_id": "a1", "episode_id": EPISODE, "task_id": TASK}
CLOSE = {"agent_session_id": "a1", "episode_id": EPISODE}


@dataclass
class NotesState(AgentSessionState):
    notes: list[str]


class NotesAgent(SimpleResponsesAPIAgent):
    """Notes the prompts of a session, and returns them when it closes."""

    opened: list[str] = []
    closed: list[str] = []
    broken: str = ""

    async def _seed_agent_session_state(self, body: AgentSeedSessionRequest) -> NotesState:
        self.opened.append(body.agent_session_id)
        state = NotesState(request=body, notes=[])
        if self.broken == "open":
            raise RuntimeError("no room")
        if self.broken == "half-open":
            raise AgentSessionSetupError(state, error=HTTPException(503, "the sandbox is gone"))
        body.tool_accesses.clear()
        return state

    async def _close_agent_session_state(self, state: AgentSessionState) -> AgentCloseSessionResponse:
        if self.broken == "close":
            raise RuntimeError("cannot release")
        assert isinstance(state, NotesState)
        self.closed.append(state.request.agent_session_id)
        cookies = {"notes": ",".join(state.notes)}
        return AgentCloseSessionResponse(agent_session_id=state.request.agent_session_id, resources_cookies=cookies)

    async def responses(
        self,
        request: Request,
        body: NeMoGymResponseCreateParamsNonStreaming = Body(),  # noqa: B008
    ) -> NeMoGymResponse:
        state = self._require_agent_session(self._agent_session_id_from_request(request))
        assert isinstance(state, NotesState)
        state.notes.append(str(body.input))
        return NeMoGymResponse.model_validate(ANSWER)

    async def run(self, body: BaseRunRequest = Body()) -> BaseVerifyResponse:  # noqa: B008
        raise NotImplementedError


def agent(kind: type[SimpleResponsesAPIAgent] = NotesAgent, **settings: Any) -> Any:
    config = BaseResponsesAPIAgentConfig(host="127.0.0.1", port=1, entrypoint="app.py", name="notes", **settings)
    return kind(config=config, server_client=MagicMock(spec=ServerClient))


def client(notes: Any) -> TestClient:
    return TestClient(notes.setup_webserver(), raise_server_exceptions=False)


def seed(caller: TestClient, **changes: Any) -> int:
    return caller.post("/v1/agent_sessions", json={**SEED, **changes}).status_code


def close(caller: TestClient, **changes: Any) -> Any:
    return caller.post("/v1/agent_sessions/close", json={**CLOSE, **changes})


def test_requests_of_a_session_find_its_state_until_it_is_closed():
    notes = agent()
    caller = client(notes)
    assert caller.post("/v1/responses", json={"input": "early"}).status_code == 409
    reply = caller.post("/v1/agent_sessions", json=SEED)
    assert (reply.status_code, reply.json()) == (200, {"agent_session_id": "a1"})
    assert caller.post("/v1/responses", json={"input": "one"}).status_code == 200
    assert close(caller).json() == {
        "agent_session_id": "a1",
        "agent_observations": None,
        "resources_cookies": {"notes": "one"},
    }
    assert caller.post("/v1/responses", json={"input": "late"}).status_code == 409


def test_an_equal_repetition_returns_the_same_session_and_a_different_request_is_refused():
    notes = agent()
    caller = client(notes)
    access = {"kind": "direct_http", "name": "tools", "required": True, "base_url": "http://127.0.0.1:5"}
    assert [seed(caller, tool_accesses=[access]) for _ in range(2)] == [200, 200]
    assert notes.opened == ["a1"]
    assert seed(caller, tool_accesses=[]) == 409
    assert seed(caller, agent_session_id="a2") == 409, "the cookie names another session"
    assert seed(client(notes), agent_session_id="a2") == 200


def test_a_repeated_close_gets_the_first_answer_and_a_late_seed_is_refused():
    notes = agent()
    caller = client(notes)
    seed(caller)
    assert close(caller).json() == close(caller).json() == close(client(notes)).json()
    assert notes.closed == ["a1"]
    assert seed(caller) == seed(client(notes)) == 409
    assert close(client(notes), episode_id={"rollout_id": "8-1"}).status_code == 409


def test_closing_an_unknown_session_succeeds_and_refuses_its_late_seed():
    notes = agent()
    assert close(client(notes)).json()["agent_session_id"] == "a1"
    assert seed(client(notes)) == 409
    assert notes.opened == notes.closed == []


def test_after_the_window_a_cookie_without_a_receipt_is_refused():
    notes = agent(session_close_retry_window_seconds=1e-9)
    caller = client(notes)
    seed(caller)
    assert close(caller).status_code == 200
    assert close(caller).status_code == 409
    assert seed(caller) == 409
    assert close(client(notes)).json()["resources_cookies"] is None


def test_a_failed_close_can_be_repeated_but_the_session_is_no_longer_usable():
    notes = agent()
    caller = client(notes)
    seed(caller)
    notes.broken = "close"
    assert close(caller).status_code == 500
    assert caller.post("/v1/responses", json={"input": "late"}).status_code == 409
    assert seed(caller) == 409
    notes.broken = ""
    assert close(caller).status_code == 200
    assert notes.closed == ["a1"]


def test_a_failed_setup_leaves_nothing_unless_it_hands_over_its_state():
    notes = agent()
    caller = client(notes)
    notes.broken = "open"
    assert seed(caller) == 500
    notes.broken = "half-open"
    reply = caller.post("/v1/agent_sessions", json=SEED)
    assert (reply.status_code, reply.json()["detail"]) == (503, "the sandbox is gone")
    notes.broken = ""
    assert seed(caller) == 409, "what it holds must be released first"
    close(caller)
    assert (notes.opened, notes.closed) == (["a1", "a1"], ["a1"])


def test_sessions_need_one_process():
    caller = TestClient(agent(num_workers=2).setup_webserver())
    with pytest.raises(ValueError, match="num_workers: 1"):
        caller.post("/v1/agent_sessions", json=SEED)
    assert seed(client(agent(num_workers=1))) == 200


def test_an_agent_without_the_hooks_has_no_sessions():
    class Plain(NotesAgent):
        _seed_agent_session_state = SimpleResponsesAPIAgent._seed_agent_session_state

    with pytest.raises(NotImplementedError, match="_seed_agent_session_state"):
        TestClient(agent(Plain).setup_webserver()).post("/v1/agent_sessions", json=SEED)


async def test_hooks_of_an_agent_can_be_called_with_a_bare_request():
    notes = agent()
    request = MagicMock(session={})
    await notes.seed_agent_session(request, AgentSeedSessionRequest.model_validate(SEED))
    assert request.session == {AGENT_SESSION_COOKIE_KEY: "a1"}
    assert notes._agent_session_id_from_request(request) == "a1"
    assert notes._agent_session_id_from_request(MagicMock()) is None
    assert notes._agent_session_id_from_request(Request({"type": "http"})) is None
    assert notes._require_agent_session("a1").notes == []
    with pytest.raises(HTTPException) as refused:
        notes._require_agent_session("a2")
    assert refused.value.status_code == 409


async def test_seeds_at_the_same_time_run_the_hook_once():
    notes = agent()
    body = AgentSeedSessionRequest.model_validate(SEED)
    await asyncio.gather(*(notes.seed_agent_session(MagicMock(session={}), body) for _ in range(3)))
    assert notes.opened == ["a1"]


def test_accesses_of_a_request_replace_those_of_the_configuration_by_name():
    def access(name: str, port: int) -> dict[str, Any]:
        return {"kind": "direct_http", "name": name, "required": False, "base_url": f"http://127.0.0.1:{port}"}

    notes = agent(tool_accesses=[access("a", 1), access("b", 2)])
    body = AgentSeedSessionRequest.model_validate({**SEED, "tool_accesses": [access("b", 3), access("c", 4)]})
    ports = [(each.name, each.base_url.port) for each in notes.effective_tool_accesses(body)]
    assert ports == [("a", 1), ("b", 3), ("c", 4)]
    with pytest.raises(ValidationError, match="'a'"):
        agent(tool_accesses=[access("a", 1), access("a", 2)])


def test_a_session_may_come_with_a_sandbox():
    access = {"connection": {"provider_config_ref": "sandbox", "descriptor": {"id": "s1"}}, "workdir": "/work"}
    body = AgentSeedSessionRequest.model_validate({**SEED, "sandbox_access": access})
    assert body.sandbox_access is not None
    assert body.sandbox_access.connection.kind == "direct"
    with pytest.raises(ValidationError):
        AgentSeedSessionRequest.model_validate({**SEED, "sandbox_access": {**access, "user": "root"}})


STEPS = st.lists(
    st.tuples(st.sampled_from(["seed", "close"]), st.sampled_from(["x", "y"]), st.sampled_from(["", "open", "close"])),
    max_size=12,
)


@given(steps=STEPS)
def test_any_order_of_requests_opens_and_closes_a_session_at_most_once(steps: list[tuple[str, str, str]]):
    async def play() -> None:
        notes = agent()
        ended: set[str] = set()
        refusals: set[int] = set()
        for step, session_id, notes.broken in steps:
            cookieless = MagicMock(session={})
            fields = {**CLOSE, "agent_session_id": session_id}
            try:
                if step == "seed":
                    body = AgentSeedSessionRequest.model_validate({**fields, "task_id": TASK})
                    await notes.seed_agent_session(cookieless, body)
                    assert session_id not in ended, "a closed id was opened again"
                else:
                    await notes.close_agent_session(cookieless, AgentCloseSessionRequest.model_validate(fields))
                    ended.add(session_id)
            except HTTPException as refused:
                refusals.add(refused.status_code)
            except RuntimeError:  # a broken hook
                continue
        assert len(notes.closed) == len(set(notes.closed))
        assert set(notes.closed) <= ended
        assert refusals <= {409}

    asyncio.run(play())
