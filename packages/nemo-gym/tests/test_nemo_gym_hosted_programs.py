"""Agents of NeMo Gym that start programs, and pass them the address of the model: every call finds its rollout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hosted_agents import LOOP, write_agent
from hosted_servers import row, write_server

import ludus
from ludus import ScriptedModel

pytest.importorskip("fastapi", reason="needs FastAPI: pip install 'ludus-nemo-gym[servers]'")

#: A server that wants a text in the answer.
JUDGE = """
class Request(BaseVerifyRequest):
    wanted: str


class Server(SimpleResourcesServer):
    config: BaseResourcesServerConfig

    async def verify(self, body: Request) -> BaseVerifyResponse:
        return BaseVerifyResponse(**body.model_dump(), reward=float(body.response.output_text == body.wanted))
"""

#: An agent whose program gets the URL, the key and the name of the model in its environment, and nothing else.
STARTING = """
import asyncio
import json
import sys

from fastapi import Body, FastAPI
from nemo_gym.base_resources_server import BaseRunRequest, BaseVerifyResponse
from nemo_gym.base_responses_api_agent import BaseResponsesAPIAgentConfig, SimpleResponsesAPIAgent
from nemo_gym.config_types import ModelServerRef, ResourcesServerRef
from nemo_gym.global_config import get_first_server_config_dict, get_global_config_dict
from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.server_utils import get_response_json, get_server_url, raise_for_status
from pydantic import ConfigDict

PROGRAM = '''
import json, os, sys, urllib.request
body = json.dumps({"model": "m", "input": sys.argv[1]}).encode()
request = urllib.request.Request(os.environ["URL"] + "/responses", body, {"Content-Type": "application/json"})
print(urllib.request.urlopen(request).read().decode())
'''


class Config(BaseResponsesAPIAgentConfig):
    resources_server: ResourcesServerRef
    model_server: ModelServerRef


class RunRequest(BaseRunRequest):
    model_config = ConfigDict(extra="allow")


class Agent(SimpleResponsesAPIAgent):
    config: Config

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming = Body()) -> NeMoGymResponse:
        name, tree = self.config.model_server.name, self.server_client.global_config_dict
        program = await asyncio.create_subprocess_exec(
            sys.executable, "-c", PROGRAM, body.input, stdout=asyncio.subprocess.PIPE, env={"URL": ADDRESS}
        )
        output, _ = await program.communicate()
        return NeMoGymResponse.model_validate(json.loads(output))

    async def run(self, body: RunRequest) -> BaseVerifyResponse:
        row = body.model_dump() | {"response": (await self.responses(body.responses_create_params)).model_dump()}
        reply = await self.server_client.post(self.config.resources_server.name, "/verify", json=row)
        await raise_for_status(reply)
        return BaseVerifyResponse.model_validate(await get_response_json(reply))
"""

#: The ways to ask for the address of the model. A row says which one its agent takes.
ADDRESSES = {
    "helper": "self.resolve_model_base_url(name)",
    "policy": 'get_global_config_dict()["policy_base_url"]',
    "client": "self.server_client._resolve_base_url(name) + '/v1'",
    "block": "self.server_client._build_server_base_url(get_first_server_config_dict(tree, name)) + '/v1'",
    "server": "get_server_url(name) + '/v1'",
    "prefixed": "self.base_url_for_run(get_server_url(name), {'_ng_rollout_id': 'x'}) + '/v1'",
}
ADDRESS = (
    f"{{{', '.join(f'{how!r}: lambda: {address}' for how, address in ADDRESSES.items())}}}[body.input.split()[0]]()"
)
ROWS = [row(f"{number}", wanted=f"{number}!") for number in range(4)]


@pytest.mark.parametrize("isolate", [True, False])
def test_a_program_finds_its_rollout_by_any_address_that_its_agent_gives_it(tmp_path: Path, isolate: bool) -> None:
    name = f"starting_{isolate}".lower()
    write_agent(tmp_path, name, STARTING.replace("ADDRESS", ADDRESS))
    rows = [row(text, wanted=f"{text}!") for text in (f"{how} {number}" for number in range(2) for how in ADDRESSES)]
    folder = write_server(tmp_path, f"of_{name}", JUDGE, rows, agent=name)
    model = ScriptedModel(lambda request: f"{request.input[-1]['content']}!")
    results = ludus.collect(folder, model=model, settings={"agent.isolate": isolate, "resources.isolate": False})
    outcomes = {rollout.task.wanted: (rollout.reward, rollout.error) for rollout in results.rollouts}
    assert outcomes == {one["wanted"]: (1.0, None) for one in rows}


#: Gives its program an address of its own making, and makes a reward of whatever the program says.
UNNAMED = (
    STARTING.replace("ADDRESS", "f'http://127.0.0.1:{tree[name].responses_api_models.ludus.port}/v1'")
    .replace('{"URL"', '{**os.environ, "URL"')
    .replace("import json\n", "import json\nimport os\n", 1)
    .replace("json.loads(output)", "json.loads(output or EMPTY)")
)
#: What such a program says if it gets no answer: an agent that goes on with it, and one that cannot.
NOTHING, EMPTY = (
    """
EMPTY = ""
""",
    """
EMPTY = json.dumps({"id": "r", "created_at": 0, "model": "m", "object": "response", "output": [],
                    "parallel_tool_calls": True, "tool_choice": "auto", "tools": []})
""",
)


def write_unnamed(root: Path, code: str) -> Path:
    """Such an agent and its server, and the folder of the server."""
    name = f"unnamed_{len(code)}"
    write_agent(root, name, code)
    return write_server(root, f"of_{name}", JUDGE, ROWS, agent=name)


def collect(folder: Path, **options: Any) -> Any:
    """Collect with an agent in a process of its own."""
    model = ScriptedModel(lambda request: f"{request.input[-1]['content']}!")
    return ludus.collect(folder, model=model, settings={"resources.isolate": False}, **options)


@pytest.mark.parametrize("code", [UNNAMED + NOTHING, UNNAMED + EMPTY])
def test_a_program_whose_calls_name_no_rollout_earns_no_reward_beside_others(tmp_path: Path, code: str) -> None:
    failed = [rollout for rollout in collect(write_unnamed(tmp_path, code), concurrency=4).rollouts if rollout.error]
    assert failed
    for rollout in failed:
        assert (rollout.reward, rollout.error.stage, rollout.error.kind) == (None, "agent", "unnamed_rollout")
        assert "play one rollout at a time, with --concurrency 1" in rollout.error.cause


def test_a_program_whose_calls_name_no_rollout_earns_its_reward_alone(tmp_path: Path) -> None:
    alone = collect(write_unnamed(tmp_path, UNNAMED + NOTHING), concurrency=1)
    assert [(rollout.reward, rollout.error) for rollout in alone.rollouts] == [(1.0, None)] * 4


#: Makes its own application, and calls itself as the base class names it.
OWN_APPLICATION = LOOP.replace(
    "    async def run(",
    """    def setup_webserver(self):
        from fastapi import FastAPI

        app = FastAPI()
        app.post("/v1/responses")(self.responses)
        app.post("/run")(self.run)
        return app

    async def run(""",
).replace(
    'url_path="/v1/responses",\n            json=body',
    'url_path=self.url_path_for_run("/v1/responses", body),\n            json=body',
)


def test_an_agent_that_makes_its_own_application_calls_itself(tmp_path: Path) -> None:
    assert "url_path_for_run" in OWN_APPLICATION
    write_agent(tmp_path, "own_application", OWN_APPLICATION)
    folder = write_server(tmp_path, "of_own_application", JUDGE, ROWS, agent="own_application")
    results = collect(folder)
    assert [(rollout.reward, rollout.error) for rollout in results.rollouts] == [(1.0, None)] * 4
