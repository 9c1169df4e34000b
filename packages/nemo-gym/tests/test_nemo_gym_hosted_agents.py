"""Agents that were written for NeMo Gym play rollouts, unchanged: with their resources and with ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hosted_agents import LOOP, configure_agent, write_agent
from hosted_servers import COUNTER, counter_rows, row, write_server

import ludus
from ludus import Failure, Outcome, Request, Response, ScriptedModel, UserError
from ludus.response import function_call, message
from ludus.tokens import Tokens

pytest.importorskip("fastapi", reason="needs FastAPI: pip install 'ludus-nemo-gym[servers]'")

ADD = [{"calls": [{"name": "increment_counter", "arguments": {"count": n}} for n in (2, 3)]}, "done"]


#: An agent that calls the model by its address.
CALLING = """
from fastapi import Body
from nemo_gym.base_resources_server import BaseRunRequest, BaseVerifyResponse
from nemo_gym.base_responses_api_agent import BaseResponsesAPIAgentConfig, SimpleResponsesAPIAgent
from nemo_gym.config_types import ModelServerRef, ResourcesServerRef
from nemo_gym.openai_utils import NeMoGymAsyncOpenAI, NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.server_utils import get_response_json, raise_for_status, request
from pydantic import ConfigDict


class Config(BaseResponsesAPIAgentConfig):
    resources_server: ResourcesServerRef
    model_server: ModelServerRef


class RunRequest(BaseRunRequest):
    model_config = ConfigDict(extra="allow")


class Agent(SimpleResponsesAPIAgent):
    config: Config

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming = Body()) -> NeMoGymResponse:
        url, params = self.resolve_model_base_url(self.config.model_server.name), body.model_dump(exclude_unset=True)
        return NeMoGymResponse.model_validate(ASK)

    async def run(self, body: RunRequest) -> BaseVerifyResponse:
        row = body.model_dump() | {"response": (await self.responses(body.responses_create_params)).model_dump()}
        reply = await self.server_client.post(self.config.resources_server.name, "/verify", json=row)
        await raise_for_status(reply)
        return BaseVerifyResponse.model_validate(await get_response_json(reply))
"""
#: A server that wants a text in the answer.
JUDGE = """
class Request(BaseVerifyRequest):
    wanted: str


class Server(SimpleResourcesServer):
    config: BaseResourcesServerConfig

    async def verify(self, body: Request) -> BaseVerifyResponse:
        return BaseVerifyResponse(**body.model_dump(), reward=float(body.wanted in body.response.output_text))
"""


def collect(where: Any, script: Any, *, isolate: bool = False, settings: Any = None, **options: Any) -> Any:
    settings = {"agent.isolate": isolate, **(settings or {})}
    return ludus.collect(where, model=ScriptedModel(script), settings=settings, **options)


def kinds(rollout: Any) -> list[str]:
    return [item["type"] for item in rollout.response.output]


@pytest.mark.parametrize("isolate", [True, False])
def test_their_agent_plays_their_server(tmp_path: Path, isolate: bool) -> None:
    name = f"looping_{isolate}".lower()
    write_agent(tmp_path, name)
    folder = write_server(tmp_path, f"counted_{isolate}".lower(), COUNTER, counter_rows(6), agent=name)
    results = collect(folder, ADD, isolate=isolate, settings={"resources.isolate": isolate}, repeats=2)
    assert [rollout.reward for rollout in results.rollouts] == [1.0] * 12
    for rollout in results.rollouts:
        assert kinds(rollout) == ["function_call"] * 2 + ["function_call_output"] * 2 + ["message"]
        assert len(rollout.calls) == 2
        assert rollout.verdict.values["final_count"] == rollout.task.initial_count + 5


def test_their_agent_plays_our_environment(tmp_path: Path) -> None:
    agent = write_agent(tmp_path, "looping_ours")
    configure_agent(agent, "example_session_state_mgmt")
    script = [{"call": "increment_counter", "arguments": {"count": 2}}, "done"]
    ours = ludus.collect("example_session_state_mgmt", model=ScriptedModel(script))
    settings = {"agent.type": "nemo_gym", "agent.source": str(agent)}
    theirs = collect("example_session_state_mgmt", script, settings=settings)
    played = [{r.rollout_id: (r.reward, kinds(r)) for r in results.rollouts} for results in (ours, theirs)]
    assert played[0] == played[1]


def test_the_folder_of_an_agent_is_the_environment_that_its_configuration_names(tmp_path: Path) -> None:
    server = write_server(tmp_path, "named_counter", COUNTER, counter_rows(2))
    agent = write_agent(tmp_path, "naming")
    tree = {"named_counter": {"resources_servers": {"named_counter": {"entrypoint": "app.py"}}}}
    configure_agent(agent, "named_counter", tree)
    results = collect(agent, ADD, settings={"resources.isolate": False})
    assert [rollout.reward for rollout in results.rollouts] == [1.0, 1.0]
    assert server.is_dir()


def test_a_model_that_fails_fails_the_rollout_with_its_own_cause(tmp_path: Path) -> None:
    write_agent(tmp_path, "asking")
    folder = write_server(tmp_path, "asked", COUNTER, counter_rows(1), agent="asking")
    script = [{"error": {"kind": "http_400", "cause": "the prompt is too long"}}]
    (rollout,) = collect(folder, script, settings={"resources.isolate": False}).rollouts
    assert (rollout.reward, rollout.error.stage, rollout.error.kind) == (None, "model", "http_400")
    assert rollout.error.cause == "the prompt is too long"


#: Makes a reward of 0 of whatever goes wrong.
SWALLOWING = (
    LOOP.replace(
        "    async def run(self, request: Request, body: RunRequest) -> VerifyResponse:\n",
        """    async def run(self, request: Request, body: RunRequest) -> VerifyResponse:
        try:
            return await self.play(request, body)
        except Exception:
            return VerifyResponse(**body.model_dump(), response=EMPTY, reward=0.0)

    async def play(self, request: Request, body: RunRequest) -> VerifyResponse:
""",
    )
    + """

EMPTY = {"id": "r", "created_at": 1, "model": "m", "object": "response", "output": [], "parallel_tool_calls": True,
         "tool_choice": "auto", "tools": []}
"""
)


def test_an_agent_that_makes_0_of_a_dead_model_earns_no_reward(tmp_path: Path) -> None:
    write_agent(tmp_path, "swallowing", SWALLOWING)
    folder = write_server(tmp_path, "swallowed", COUNTER, counter_rows(1), agent="swallowing")
    script = [{"error": {"kind": "http_500", "cause": "the model crashed"}}]
    (rollout,) = collect(folder, script, settings={"resources.isolate": False}).rollouts
    assert (rollout.reward, rollout.error.stage, rollout.error.cause) == (None, "model", "the model crashed")


def test_an_agent_that_raises_fails_the_rollout(tmp_path: Path) -> None:
    write_agent(tmp_path, "raising", LOOP.replace("        seeded = await", "        1 / 0\n        seeded = await"))
    folder = write_server(tmp_path, "raised", COUNTER, counter_rows(1), agent="raising")
    (rollout,) = collect(folder, ADD, settings={"resources.isolate": False}).rollouts
    assert (rollout.reward, rollout.error.stage, rollout.error.kind) == (None, "agent", "http_500")
    assert "ZeroDivisionError" in rollout.error.cause


def test_the_tokens_of_an_agents_calls_are_one_sequence(tmp_path: Path) -> None:
    write_agent(tmp_path, "trained")
    folder = write_server(tmp_path, "trained_on", COUNTER, counter_rows(1), agent="trained")
    call = function_call("increment_counter", {"count": 5}, call_id="c1")

    def answer(request: Request) -> Response:
        """Tokens as a server reports them: the second prompt continues the first answer."""
        if request.turn == 0:
            return Response.of(call, tokens=Tokens([1, 2], [3, 4], [-0.1, -0.2]))
        return Response.of(message("done"), tokens=Tokens([1, 2, 3, 4, 5], [6], [-0.3]))

    (rollout,) = collect(folder, answer, settings={"resources.isolate": False}, tokens=True).rollouts
    assert (rollout.reward, rollout.outcome) == (1.0, Outcome.COMPLETED)
    (sequence,) = rollout.sequences()
    assert (sequence.ids, sequence.mask) == ([1, 2, 3, 4, 5, 6], [0, 0, 1, 1, 0, 1])


#: Asks with the client of the package or with the function below it, as the text of the row says.
ASK_AS_TOLD = """(
            await NeMoGymAsyncOpenAI(base_url=url, api_key='x').create_response(**params)
            if "client" in body.input
            else await (await request('POST', f'{url}/responses', json=params)).json()
        )"""


@pytest.mark.parametrize("isolate", [True, False])
def test_agents_with_clients_of_their_own_play_several_rollouts_at_once(tmp_path: Path, isolate: bool) -> None:
    name = f"calling_{isolate}".lower()
    write_agent(tmp_path, name, CALLING.replace("ASK", ASK_AS_TOLD))
    wanted = [f"{way} {number}" for way in ("client", "request") for number in range(3)]
    folder = write_server(tmp_path, f"of_{name}", JUDGE, [row(text, wanted=text) for text in wanted], agent=name)
    settings = {"resources.isolate": False}
    results = collect(folder, lambda request: str(request.input[-1])[-20:], isolate=isolate, settings=settings)
    assert {rollout.task.wanted: rollout.reward for rollout in results.rollouts} == dict.fromkeys(wanted, 1.0)


def test_an_agent_that_is_not_there_can_be_replaced(tmp_path: Path) -> None:
    folder = write_server(tmp_path, "agentless", COUNTER, counter_rows(1), agent="no_such_agent")
    settings = {"resources.isolate": False}
    with pytest.raises(UserError, match="there is no agent no_such_agent in .*responses_api_agents. Choose one"):
        ludus.collect(folder, model=ScriptedModel(ADD), settings=settings)
    results = ludus.collect(folder, model=ScriptedModel(ADD), settings={**settings, "agent.type": "simple"})
    assert results[0].reward == 1.0


def test_a_row_that_the_server_refuses_fails_at_open(tmp_path: Path) -> None:
    write_agent(tmp_path, "refused_agent")
    folder = write_server(tmp_path, "refusing_server", COUNTER, [row("?", "increment_counter")], agent="refused_agent")
    (rollout,) = collect(folder, ADD, settings={"resources.isolate": False}).rollouts
    assert isinstance(rollout.error, Failure)
    assert (rollout.error.stage, rollout.error.kind) == ("open", "http_422")


#: Metrics that an agent computes: of its own rollouts, and of what its resources server computed.
MEASURES = """
    def compute_metrics(self, tasks):
        return {"longest": max(len(task) for task in tasks)}

    def get_key_metrics(self, agent_metrics):
        return {"longest": agent_metrics["longest"]}
"""
PASSES_ON = """
    async def aggregate_metrics(self, body: AggregateMetricsRequest) -> AggregateMetrics:
        reply = await self.server_client.post(
            self.config.resources_server.name, "/aggregate_metrics", json=body.model_dump()
        )
        await raise_for_status(reply)
        theirs = AggregateMetrics.model_validate(await get_response_json(reply))
        return AggregateMetrics(key_metrics={"passed_on": theirs.key_metrics["counted"] + 1})
"""
COUNTS = (
    COUNTER
    + """
    def compute_metrics(self, tasks):
        return {"counted": sum(map(len, tasks))}

    def get_key_metrics(self, agent_metrics):
        return {"counted": agent_metrics["counted"]}
"""
)


@pytest.mark.parametrize(
    ("metrics", "expected"), [(MEASURES, {"counted": 2, "longest": 2}), (PASSES_ON, {"counted": 2, "passed_on": 3})]
)
def test_the_metrics_of_an_agent_stand_beside_those_of_its_server(
    tmp_path: Path, metrics: str, expected: dict[str, float]
) -> None:
    name = "measuring" if metrics is MEASURES else "passing_on"
    imports = "from nemo_gym.config_types import AggregateMetrics, AggregateMetricsRequest\n"
    write_agent(tmp_path, name, imports + LOOP + metrics)
    folder = write_server(tmp_path, f"{name}_server", COUNTS, counter_rows(1), agent=name)
    results = collect(folder, ADD, settings={"resources.isolate": False}, repeats=2)
    assert results.warnings == []
    assert results.metrics["own"] == {folder.name: expected}


def test_an_agent_that_writes_its_own_prompt_and_items_keeps_its_reward(tmp_path: Path) -> None:
    ask = """{
            "id": "r", "created_at": 0, "model": "m", "object": "response", "parallel_tool_calls": True,
            "tool_choice": "auto", "tools": [], "output": [{"id": "m", "type": "message", "role": "assistant",
            "status": "completed", "content": [{"type": "output_text", "annotations": [], "text": (await
            NeMoGymAsyncOpenAI(base_url=url, api_key="k").create_chat_completion(model="m", messages=[{"role": "user",
            "content": "Another prompt"}]))["choices"][0]["message"]["content"]}]}]}"""
    write_agent(tmp_path, "rewriting", CALLING.replace("ASK", ask))
    folder = write_server(tmp_path, "rewritten", JUDGE, [row("Say yes", wanted="yes")], agent="rewriting")
    (rollout,) = collect(folder, ["yes"], settings={"resources.isolate": False}).rollouts
    assert (rollout.outcome, rollout.reward) == (Outcome.COMPLETED, 1.0)
