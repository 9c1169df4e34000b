"""The commands run agents whose code is an `app.py` on disk, with NeMo Gym's own configuration files."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from gym_commands import (
    KEY,
    Row,
    address_of,
    lines,
    rewards,
    run_of,
    started,
    typed,
)
from hosted_agents import LOOP, write_agent
from hosted_servers import COUNTER, counter_rows, row, write_server
from ludus_nemo_gym.config import read_config
from ludus_nemo_gym.launch import AgentPart, Launch
from ludus_nemo_gym.starting import plan_of
from ludus_nemo_gym.wiring import wire

from ludus import UserError
from ludus.serve.site import check

pytest.importorskip("fastapi", reason="needs FastAPI: pip install 'ludus-nemo-gym[servers]'")
pytestmark = pytest.mark.usefixtures("in_a_checkout")

LOCAL = "responses_api_models/local/configs/local.yaml"
#: An environment of Ludus with the tool `increment_counter`, and its rows.
OURS = "example_session_state_mgmt"
OUR_ROWS = f"resources_servers/{OURS}/data/example.jsonl"


def ref(kind: str, name: str) -> Row:
    return {"type": kind, "name": name}


def agent_block(resources: str | None, rows: str | None = None, **settings: Any) -> Row:
    """The settings of an agent that plays resources with the policy."""
    block: Row = {"entrypoint": "app.py", "model_server": ref("responses_api_models", "policy_model"), **settings}
    block |= {"resources_server": ref("resources_servers", resources)} if resources is not None else {}
    data = {"name": "example", "type": "example", "jsonl_fpath": rows}
    return {**block, "datasets": [data]} if rows is not None else block


def write_config(name: str, **agents: tuple[str, Row]) -> str:
    """A configuration file with agents: the implementation and the settings of each."""
    tree = {instance: {"responses_api_agents": {kind: block}} for instance, (kind, block) in agents.items()}
    Path(name).write_text(json.dumps(tree))
    return name


def name_of(rollout: Row) -> str:
    return str(rollout["agent_ref"]["name"])


def launch_of(*files: str, **settings: Any) -> Launch:
    return wire(read_config([f"+config_paths=[{','.join([*files, LOCAL])}]"], initial=settings))


def part_of(launch: Launch, name: str) -> AgentPart:
    (part,) = [instance.part for instance in launch.servers if instance.name == name]
    assert isinstance(part, AgentPart)
    return part


def test_eval_run_plays_a_server_on_disk_with_an_agent_on_disk_and_starts_each_once(tmp_path: Path) -> None:
    note = 'open("starts.txt", "a").write("started ")\n'
    agent = write_agent(tmp_path, "my_agent", note + LOOP)
    server = write_server(tmp_path, "counter", note + COUNTER, counter_rows(3), agent="my_agent")
    assert run_of("counter", "--num-repeats 2", isolate=True) == 0
    assert rewards() == [1.0] * 6
    assert sorted(rollout["final_count"] for rollout in lines("r.jsonl")) == [5, 5, 6, 6, 7, 7]
    assert {(folder / "starts.txt").read_text() for folder in (agent, server)} == {"started "}


def test_an_agent_on_disk_plays_an_environment_of_ludus_like_ours(tmp_path: Path) -> None:
    write_agent(tmp_path, "my_agent")
    config = write_config("mine.yaml", mine=("my_agent", agent_block(OURS, OUR_ROWS)))
    assert run_of(OURS, f"--config {config}") == 0
    rewards_of: dict[str, set[tuple[int, int, float]]] = {"mine": set(), f"{OURS}_simple_agent": set()}
    for rollout in lines("r.jsonl"):
        rewards_of[name_of(rollout)].add((rollout["initial_count"], rollout["expected_count"], rollout["reward"]))
    assert rewards_of["mine"] == rewards_of[f"{OURS}_simple_agent"]
    assert {reward for *_, reward in rewards_of["mine"]} == {0.0, 1.0}


def test_ng_run_serves_an_agent_on_disk_which_plays_servers_at_urls_too(tmp_path: Path) -> None:
    write_agent(tmp_path, "my_agent")
    write_server(tmp_path, "counter", COUNTER, counter_rows(2), agent="my_agent")
    rows = "resources_servers/counter/data/example.jsonl"
    models = "responses_api_models/scripted/configs/scripted.yaml"
    paths = f"resources_servers/counter/configs/counter.yaml,{OUR_ROWS.split('/data')[0]}/configs/{OURS}.yaml,{models}"
    own = "++isolate_own_code=false"
    with started(f"ng_run '+config_paths=[{paths}]' ++policy_model_name=script.yaml {own}") as port:
        collect = f"+agent_name=counter_simple_agent +input_jsonl_fpath={rows} +output_jsonl_fpath=ng.jsonl"
        assert typed(f"ng_collect_rollouts {collect} ++head_server.port={port}") == 0
        agents = {
            "theirs": ("my_agent", agent_block("remote", rows)),
            "ours": ("my_agent", agent_block("session", OUR_ROWS)),
        }
        config = write_config("urls.yaml", **agents)
        urls = [
            f"++remote.resources_servers.counter.url={address_of('counter', port)}",
            f"++session.resources_servers.{OURS}.url={address_of(OURS, port)}",
        ]
        line = "gym eval run --model-type scripted --model script.yaml --output urls.jsonl"
        assert typed(f"{line} --config {config} ++isolate_own_code=false {' '.join(urls)}") == 0
    assert rewards("ng.jsonl") == [1.0, 1.0]
    played = lines("urls.jsonl")
    assert sorted(rollout["final_count"] for rollout in played if name_of(rollout) == "theirs") == [5, 6]
    assert {rollout["reward"] for rollout in played if name_of(rollout) == "ours"} == {0.0, 1.0}


#: Asks the policy at the address in its settings, and a judge by name.
DIRECT = """
from fastapi import Body, Request, Response
from nemo_gym.base_resources_server import BaseRunRequest, BaseVerifyResponse
from nemo_gym.base_responses_api_agent import BaseResponsesAPIAgentConfig, SimpleResponsesAPIAgent
from nemo_gym.config_types import ModelServerRef
from nemo_gym.openai_utils import NeMoGymResponse, NeMoGymResponseCreateParamsNonStreaming
from nemo_gym.server_utils import get_response_json, request


class Config(BaseResponsesAPIAgentConfig):
    policy_url: str
    policy_api_key: str
    judge_model_server: ModelServerRef
    search_api_key: str


class Agent(SimpleResponsesAPIAgent):
    config: Config

    async def responses(self, body: NeMoGymResponseCreateParamsNonStreaming = Body()) -> NeMoGymResponse:
        raise NotImplementedError

    async def run(self, request_: Request, body: BaseRunRequest) -> BaseVerifyResponse:
        params = body.responses_create_params.model_dump(exclude_unset=True)
        url = f"{self.config.policy_url}/responses"
        answer = await get_response_json(await request("POST", url, json=params))
        judge = await self.server_client.post(
            server_name=self.config.judge_model_server.name, url_path="/v1/responses", json={"input": "Is it right?"}
        )
        said = NeMoGymResponse.model_validate(await get_response_json(judge)).output_text
        known = (self.config.policy_api_key, self.config.search_api_key) == ("none", "KEY")
        return BaseVerifyResponse(**body.model_dump(), response=answer, reward=float("right" in said and known))
""".replace("KEY", KEY)


def write_direct(root: Path) -> str:
    """An agent without resources, its judge, and its configuration file."""
    write_agent(root, "direct", DIRECT)
    Path("rows.jsonl").write_text(json.dumps(row("Say something.")) + "\n")
    Path("env.yaml").write_text(f"hf_token: {KEY}\n")
    settings = {
        "policy_url": "${policy_base_url}",
        "policy_api_key": "${policy_api_key}",
        "judge_model_server": ref("responses_api_models", "judge_model"),
        "search_api_key": "${hf_token}",
    }
    write_config("direct.yaml", direct=("direct", agent_block(None, "rows.jsonl", **settings)))
    judge = {"judge_model": {"responses_api_models": {"scripted": {"entrypoint": "app.py", "script": "judge.json"}}}}
    Path("judge.yaml").write_text(json.dumps(judge))
    Path("judge.json").write_text(json.dumps(["It is right."]))
    return "direct.yaml"


def test_an_agent_without_resources_gets_its_judge_its_secrets_and_the_policy_of_the_rollout(tmp_path: Path) -> None:
    config = write_direct(tmp_path)
    policy = "++policy_base_url=http://127.0.0.1:1/v1 ++policy_api_key=sk-not-for-the-agent"
    line = "gym eval run --model-type scripted --model script.yaml --output r.jsonl --config judge.yaml"
    assert typed(f"{line} --config {config} {policy}") == 0
    (rollout,) = lines("r.jsonl")
    assert rollout["reward"] == 1.0
    assert [item["type"] for item in rollout["response"]["output"]] == ["function_call"]


def test_no_secret_of_an_agent_is_in_a_plan(tmp_path: Path) -> None:
    keys = {"policy_base_url": "http://127.0.0.1:1/v1", "policy_api_key": KEY}
    launch = launch_of(write_direct(tmp_path), "judge.yaml", **keys)
    assert KEY not in repr(launch)
    assert KEY not in plan_of(launch).model_dump_json()
    assert KEY in json.dumps(launch.secrets)


def test_run_helper_starts_an_agent_on_disk(tmp_path: Path) -> None:
    from nemo_gym.cli import GlobalConfigDictParserConfig, RunHelper
    from nemo_gym.global_config import find_open_port
    from nemo_gym.rollout_collection import RolloutCollectionHelper
    from nemo_gym.server_utils import BaseServerConfig

    write_agent(tmp_path, "my_agent")
    head = BaseServerConfig(host="127.0.0.1", port=find_open_port())
    config = {
        "config_paths": [write_config("mine.yaml", mine=("my_agent", agent_block("counter")))],
        "counter": {"resources_servers": {OURS: {"entrypoint": "app.py"}}},
        "policy_model": {"responses_api_models": {"scripted": {"script": "script.yaml"}}},
        "head_server": {"host": head.host, "port": head.port},
        "isolate_own_code": False,
    }
    rows = [{**task, "agent_ref": {"name": "mine"}, "_rowidx": n} for n, task in enumerate(counter_rows(2))]

    async def played() -> list[Row]:
        works = RolloutCollectionHelper().run_examples(rows, head_server_config=head)
        return [(await work)[1] for work in works]

    helper = RunHelper()
    helper.start(GlobalConfigDictParserConfig(initial_global_config_dict=config, skip_load_from_cli=True))
    try:
        results = asyncio.run(played())
    finally:
        helper.shutdown()
    assert [result["reward"] for result in results] == [1.0, 1.0]


def test_ludus_agent_stays_the_default_until_own_code_is_preferred(tmp_path: Path) -> None:
    folder = write_agent(tmp_path, "simple_agent")
    config = f"resources_servers/{OURS}/configs/{OURS}.yaml"
    assert part_of(launch_of(config), f"{OURS}_simple_agent").type == "simple"
    launch = launch_of(config, prefer_own_code=True)
    part = part_of(launch, f"{OURS}_simple_agent")
    assert (part.type, part.settings["source"], part.resources, part.model) == (
        "nemo_gym",
        str(folder),
        OURS,
        "policy_model",
    )
    check(plan_of(launch))
    (description,) = [each.description() for each in launch.servers if each.part is part]
    assert description == f"code in {folder} with {OURS} and policy_model"


def test_list_knows_the_agents_of_the_checkout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_agent(tmp_path, "my_agent")
    assert typed("gym list agents --status yours") == 0
    assert capsys.readouterr().out.split() == ["my_agent", "code", "in", "responses_api_agents/my_agent"]


def test_the_policy_is_the_model_that_the_agent_names(tmp_path: Path) -> None:
    write_agent(tmp_path, "my_agent")
    other = {"other": {"responses_api_models": {"local": {"entrypoint": "app.py"}}}}
    named = agent_block(OURS, model_server=ref("responses_api_models", "other"))
    fields = {key: value for key, value in agent_block(OURS).items() if key != "model_server"}
    by_field = {**fields, "policy_model_server": ref("responses_api_models", "other")}
    config = write_config(
        "mine.yaml", a=("my_agent", named), b=("my_agent", by_field), c=("my_agent", fields), d=("gone", fields)
    )
    files = (f"resources_servers/{OURS}/configs/resources_only.yaml", config)
    launch = launch_of(*files, **other, d={"responses_api_agents": {"gone": {"url": "http://h:1"}}})
    assert [part_of(launch, name).model for name in "abc"] == ["other", "other", "policy_model"]


def test_an_agent_plays_the_resources_of_the_environment_server_in_front_of_it(tmp_path: Path) -> None:
    write_agent(tmp_path, "my_agent")
    config = write_config("mine.yaml", mine=("my_agent", agent_block(None)))
    front = {
        "agent_server": {"type": "responses_api_agents", "name": "mine"},
        "resources_server": ref("resources_servers", OURS),
    }
    files = (f"resources_servers/{OURS}/configs/resources_only.yaml", config)
    launch = launch_of(*files, front={"environment_servers": {"single_agent_turn": front}})
    part = part_of(launch, "mine")
    assert part.resources == OURS
    assert part.settings["environment_server"] == {"resources_server": ref("resources_servers", OURS)}


def test_an_agent_on_disk_does_not_play_a_game_of_ludus(tmp_path: Path) -> None:
    write_agent(tmp_path, "my_agent")
    write_agent(tmp_path, "gymnasium_agent")
    config = "resources_servers/blackjack/configs/blackjack.yaml"
    launch = launch_of(config, prefer_own_code=True)
    assert part_of(launch, "blackjack_simple_agent").type == "gymnasium"
    mine = write_config("mine.yaml", mine=("my_agent", agent_block("blackjack")))
    with pytest.raises(UserError, match="cannot play .*blackjack, a game of Ludus. Name Ludus's agent for games"):
        launch_of(config, mine)


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("import no_such_package_xyz", "no_such_package_xyz"),
        (LOOP.replace("max_steps: int = 10", "size: int"), "++mine.responses_api_agents.my_agent.size=VALUE"),
    ],
)
def test_an_agent_that_cannot_start_is_one_line(
    code: str, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_agent(tmp_path, "my_agent", code)
    config = write_config("mine.yaml", mine=("my_agent", agent_block(OURS, OUR_ROWS)))
    assert run_of(f"{OURS}/resources_only", f"--config {config}") == 2
    (printed,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert problem in printed
