"""The commands run resources servers whose code is an `app.py` on disk, with NeMo Gym's own configuration files."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest
import yaml
from gym_commands import (
    KEY,
    Row,
    address_of,
    answers,
    asked,
    assert_no_plan_holds_the_key,
    lines,
    response,
    rewards,
    run_of,
    started,
    typed,
)
from hosted_servers import COUNTER, counter_rows, row, write_server, write_typed
from ludus_nemo_gym.config import read_config
from ludus_nemo_gym.launch import HostedPart
from ludus_nemo_gym.starting import plan_of
from ludus_nemo_gym.wiring import wire
from servers import Server

from ludus import UserError

pytest.importorskip("fastapi", reason="needs FastAPI: pip install 'ludus-nemo-gym[servers]'")


pytestmark = pytest.mark.usefixtures("in_a_checkout")


METRICS = """
class Server(SimpleResourcesServer):
    config: BaseResourcesServerConfig

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        return BaseVerifyResponse(**body.model_dump(), reward=float("yes" in body.response.output_text))

    def compute_metrics(self, tasks: list) -> dict:
        return {"tasks": len(tasks), "rollouts": sum(len(task) for task in tasks)}

    def get_key_metrics(self, agent_metrics: dict) -> dict:
        return {"rollouts": agent_metrics["rollouts"], "tasks": agent_metrics["tasks"]}
"""

BROKEN_METRICS = METRICS.replace('"tasks": len(tasks)', '"tasks": 1 / 0')


def test_eval_run_collects_the_example_rows_of_a_server_on_disk(tmp_path: Path) -> None:
    write_server(tmp_path, "counter", COUNTER, counter_rows(3))
    assert run_of("counter", "--num-repeats 2") == 0
    assert sorted(rollout["final_count"] for rollout in lines("r.jsonl")) == [5, 5, 6, 6, 7, 7]
    assert rewards() == [1.0] * 6


def test_a_server_and_the_agent_that_plays_it_are_one_process(tmp_path: Path) -> None:
    code = f'open("starts.txt", "a").write("started ")\n{COUNTER}'
    folder = write_server(tmp_path, "counter", code, counter_rows(1))
    flag = "++counter_simple_agent.responses_api_agents.simple_agent.max_steps=5"
    assert run_of("counter", flag, isolate=True) == 0
    assert rewards() == [1.0]
    assert (folder / "starts.txt").read_text() == "started "


def test_ng_run_starts_a_server_on_disk_and_its_routes_answer(tmp_path: Path) -> None:
    first = counter_rows(1)[0]
    write_server(tmp_path, "counter", COUNTER, counter_rows(2))
    paths = "resources_servers/counter/configs/counter.yaml,responses_api_models/scripted/configs/scripted.yaml"
    with started(f"ng_run '+config_paths=[{paths}]' ++policy_model_name=script.yaml") as port:
        collect = "+agent_name=counter_simple_agent +input_jsonl_fpath=resources_servers/counter/data/example.jsonl"
        assert typed(f"ng_collect_rollouts {collect} +output_jsonl_fpath=r.jsonl ++head_server.port={port}") == 0
        requests = [
            ("/seed_session", first),
            ("/increment_counter", {"count": 2}),
            ("/increment_counter", {"count": 3}),
            ("/verify", {**first, "response": response("done")}),
            ("/aggregate_metrics", {"verify_responses": [{"_ng_task_index": 0, "_ng_rollout_index": 0, "reward": 1}]}),
            ("/reverify_mode", None),
        ]
        _, once, twice, verdict, metrics, mode = asyncio.run(asked(address_of("counter", port), *requests))
    assert rewards() == [1.0, 1.0]
    assert (once, twice) == ({"success": True}, {"success": True})
    assert (verdict["reward"], verdict["final_count"]) == (1.0, 5)
    assert metrics["key_metrics"] == {"mean/reward": 1.0}
    assert mode == "unknown"


def test_the_metrics_of_an_agent_are_those_that_its_server_computes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_server(tmp_path, "metrics", METRICS, [row("Say yes."), row("Say no.")])
    answers("yes")
    assert run_of("metrics", "--num-repeats 3") == 0
    (agent,) = json.loads(Path("r_aggregate_metrics.json").read_text())
    assert agent["key_metrics"].items() >= {"rollouts": 6, "tasks": 2}.items()
    assert "mean/reward" not in agent["key_metrics"]
    assert agent["agent_metrics"]["mean/reward"] == 1.0
    assert '"rollouts": 6' in capsys.readouterr().out


def test_a_server_that_cannot_compute_its_metrics_is_named_and_ours_are_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_server(tmp_path, "broken", BROKEN_METRICS, [row("Say yes.")])
    answers("yes")
    assert run_of("broken") == 0
    (agent,) = json.loads(Path("r_aggregate_metrics.json").read_text())
    assert agent["key_metrics"]["mean/reward"] == 1.0
    printed = capsys.readouterr().err
    assert "note: broken_simple_agent: its server computed no metrics" in printed
    assert "ZeroDivisionError" in printed


def test_two_instances_of_one_folder_have_their_own_settings(tmp_path: Path) -> None:
    code = """
    class Config(BaseResourcesServerConfig):
        word: str


    class Server(SimpleResourcesServer):
        config: Config

        async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
            assert os.environ["NEMO_GYM_CONFIG_PATH"] == self.config.name
            return BaseVerifyResponse(**body.model_dump(), reward=float(self.config.word in body.response.output_text))
    """
    write_server(tmp_path, "words", code, [row("Say yes.")], settings={"word": "yes"})
    server = {"resources_servers": {"words": {"entrypoint": "app.py", "domain": "other", "word": "no"}}}
    agent = {
        "entrypoint": "app.py",
        "resources_server": {"type": "resources_servers", "name": "other_words"},
        "model_server": {"type": "responses_api_models", "name": "policy_model"},
        "datasets": [{"name": "e", "type": "example", "jsonl_fpath": "resources_servers/words/data/example.jsonl"}],
    }
    more = {"other_words": server, "other_agent": {"responses_api_agents": {"simple_agent": agent}}}
    Path("more.yaml").write_text(json.dumps(more))
    answers("yes")
    assert run_of("words", "--config more.yaml", isolate=True) == 0
    by_agent = {rollout["agent_ref"]["name"]: rollout["reward"] for rollout in lines("r.jsonl")}
    assert by_agent == {"words_simple_agent": 1.0, "other_agent": 0.0}


JUDGED = """
class Config(BaseResourcesServerConfig):
    judge_model_server: ModelServerRef


class Server(SimpleResourcesServer):
    config: Config

    async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
        said = await call_judge(
            self.server_client,
            server_name=self.config.judge_model_server.name,
            url_path="/v1/responses",
            json=NeMoGymResponseCreateParamsNonStreaming(input="Is it right?"),
            response_model=NeMoGymResponse,
        )
        return BaseVerifyResponse(**body.model_dump(), reward=float("right" in said.output_text))
"""


def write_judged(root: Path, implementation: str, **judge: str) -> None:
    """A server with a judge, and the file `judge.yaml` with the model of that name."""
    reference = {"type": "responses_api_models", "name": "judge_model"}
    write_server(root, "judged", JUDGED, [row("?")], settings={"judge_model_server": reference})
    tree = {"judge_model": {"responses_api_models": {implementation: {"entrypoint": "app.py", **judge}}}}
    Path("judge.yaml").write_text(json.dumps(tree))


def test_a_judge_is_the_model_of_that_name_in_the_configuration(tmp_path: Path) -> None:
    Path("verdicts.yaml").write_text(json.dumps(["It is right."]))
    write_judged(tmp_path, "scripted", script="verdicts.yaml")
    assert run_of("judged", "--config judge.yaml") == 0
    assert rewards() == [1.0]


def test_the_key_of_a_judge_reaches_its_endpoint_and_is_in_no_plan(tmp_path: Path, server: Server) -> None:
    write_judged(tmp_path, "openai_model", openai_base_url=server.url, openai_api_key=KEY, openai_model="m")
    run_of("judged", "--config judge.yaml")
    assert f"authorization: bearer {KEY}" in server.headers[0].decode().lower()
    assert_no_plan_holds_the_key("judged", "judge.yaml")


def test_the_secrets_of_a_server_reach_its_code_and_are_in_no_plan(tmp_path: Path) -> None:
    code = f"""
    class Config(BaseResourcesServerConfig):
        search_api_key: str
        address: str


    class Server(SimpleResourcesServer):
        config: Config

        async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
            from nemo_gym.global_config import get_global_config_dict

            keys = [self.config.search_api_key, get_global_config_dict()["hf_token"], self.config.address[-16:]]
            return BaseVerifyResponse(**body.model_dump(), reward=float(keys == ["{KEY}"] * 3))
    """
    settings = {"search_api_key": "${hf_token}", "address": "http://h/?key=${hf_token}"}
    write_server(tmp_path, "secret", code, [row("?")], settings=settings)
    Path("env.yaml").write_text(f"hf_token: {KEY}\n")
    assert run_of("secret") == 0
    assert rewards() == [1.0]
    assert_no_plan_holds_the_key("secret")


def test_ludus_environment_stays_the_default_until_own_code_is_preferred(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_server(tmp_path, "mcqa", METRICS, [row("Say yes.")])
    line = "gym env start --resources-server mcqa --model-type local +dry_run=true"
    assert typed(line) == 0
    printed = capsys.readouterr()
    assert "environment mcqa" in printed.out
    assert "++prefer_own_code=true" in printed.err
    assert typed(f"{line} ++prefer_own_code=true") == 0
    assert f"code in {tmp_path}/resources_servers/mcqa" in capsys.readouterr().out
    answers("yes")
    assert run_of("mcqa", "++prefer_own_code=true") == 0
    (agent,) = json.loads(Path("r_aggregate_metrics.json").read_text())
    assert agent["key_metrics"]["rollouts"] == 1


def test_a_server_is_found_beside_its_configuration_file_and_in_a_search_folder(tmp_path: Path) -> None:
    folder = write_server(tmp_path / "checkout", "counter", COUNTER, counter_rows(1))
    assert typed(f"gym env validate --config {folder}/configs/counter.yaml --model-type local") == 0
    assert typed("gym env validate --resources-server counter --model-type local") == 2
    assert typed("gym env validate --resources-server counter --model-type local --search-dir checkout") == 0


def test_a_game_on_disk_is_played_turn_by_turn(tmp_path: Path) -> None:
    code = """
    class Server(SimpleResourcesServer):
        config: BaseResourcesServerConfig
        turns: dict[str, int] = Field(default_factory=dict)

        def setup_webserver(self) -> FastAPI:
            app = super().setup_webserver()
            app.post("/reset")(self.reset)
            app.post("/step")(self.step)
            return app

        async def reset(self, request: Request) -> dict:
            self.turns[request.session[SESSION_ID_KEY]] = 0
            return {"observation": "Guess.", "info": {}}

        async def step(self, request: Request, body: BaseVerifyRequest) -> dict:
            key = request.session[SESSION_ID_KEY]
            self.turns[key] += 1
            over = "yes" in body.response.output_text
            ends = {"terminated": over, "truncated": False, "info": {}}
            return {"observation": "Again.", "reward": float(over and self.turns[key] == 3), **ends}

        async def verify(self, body: BaseVerifyRequest) -> BaseVerifyResponse:
            raise NotImplementedError
    """
    write_server(tmp_path, "guess", code, [row("Guess.")], agent="gymnasium_agent")
    answers("no", "no", "yes")
    assert run_of("guess") == 0
    assert rewards() == [1.0]


def test_list_knows_the_servers_of_the_checkout(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_server(tmp_path, "counter", COUNTER, counter_rows(1))
    assert typed("gym list resources-servers counter --json") == 0
    entry = json.loads(capsys.readouterr().out)
    assert (entry["status"], entry["description"]) == ("yours", "The server counter.")
    assert entry["agents"] == ["counter_simple_agent"]
    assert entry["config"] == "resources_servers/counter/configs/counter.yaml"
    assert typed("gym list resources-servers --status yours") == 0
    assert re.fullmatch(r"counter +agent +The server counter\.\n", capsys.readouterr().out)
    (folder / "configs" / "counter.yaml").write_text("[")
    assert typed("gym list resources-servers counter") == 0
    assert "broken" in capsys.readouterr().out


def test_validate_and_resolve_know_a_server_on_disk_and_do_not_run_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_server(tmp_path, "theirs", "raise SystemExit('this must not run')", [row("?")])
    assert typed("gym env validate --resources-server theirs --model-type local") == 0
    assert "valid: 3 servers" in capsys.readouterr().out
    assert typed("gym env resolve --resources-server theirs --model-type local") == 0
    tree = yaml.safe_load(capsys.readouterr().out)
    assert tree["theirs"]["resources_servers"]["theirs"]["entrypoint"] == "app.py"


NEEDS_SIZE = METRICS.replace(
    "class Server", "class Config(BaseResourcesServerConfig):\n    size: int\n\n\nclass Server"
)


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("import no_such_package_xyz", "no_such_package_xyz"),
        ("raise ValueError('bad luck')", "bad luck"),
        ("", "defines no server"),
        (
            NEEDS_SIZE.replace("config: BaseR", "config: Config  # BaseR"),
            "Set it with: ++theirs.resources_servers.theirs.size=VALUE",
        ),
    ],
)
def test_code_that_cannot_start_is_one_line(
    code: str, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_server(tmp_path, "theirs", code, [row("?")])
    assert run_of("theirs") == 2
    (printed,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert problem in printed


def test_a_configuration_that_is_not_named_after_its_server_is_offered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_server(tmp_path, "counter", COUNTER, counter_rows(1))
    (folder / "configs" / "counter.yaml").rename(folder / "configs" / "hard.yaml")
    assert typed("gym env validate --resources-server counter --model-type local") == 2
    assert "--resources-server counter/NAME; the names are: hard" in capsys.readouterr().err
    assert typed("gym env validate --resources-server counter/hard --model-type local") == 0


def test_run_helper_starts_a_server_on_disk(tmp_path: Path) -> None:
    from nemo_gym.cli import GlobalConfigDictParserConfig, RunHelper
    from nemo_gym.global_config import find_open_port
    from nemo_gym.rollout_collection import RolloutCollectionHelper
    from nemo_gym.server_utils import BaseServerConfig

    write_server(tmp_path, "counter", COUNTER, counter_rows(3))
    head = BaseServerConfig(host="127.0.0.1", port=find_open_port())
    kinds = ("resources_servers/counter/configs/counter", "responses_api_models/scripted/configs/scripted")
    config = {
        "config_paths": [f"{kind}.yaml" for kind in kinds],
        "policy_model_name": "script.yaml",
        "head_server": {"host": head.host, "port": head.port},
        "isolate_own_code": False,
    }
    named = {"agent_ref": {"name": "counter_simple_agent"}}
    rows = [{**task, **named, "_rowidx": number} for number, task in enumerate(counter_rows(3))]

    async def played() -> list[Row]:
        works = RolloutCollectionHelper().run_examples(rows, head_server_config=head)
        return [(await work)[1] for work in works]

    helper = RunHelper()
    helper.start(GlobalConfigDictParserConfig(initial_global_config_dict=config, skip_load_from_cli=True))
    try:
        results = asyncio.run(played())
    finally:
        helper.shutdown()
    assert {result["_rowidx"]: result["final_count"] for result in results} == {0: 5, 1: 6, 2: 7}


@pytest.mark.usefixtures("few_plugins")
@pytest.mark.parametrize("name", ["words", "mcqa"])
def test_env_test_runs_the_tests_of_a_server_on_disk_with_our_nemo_gym(
    name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    tests = f"""
    import nemo_gym
    from resources_servers.{name}.app import Server
    from app import BaseResourcesServerConfig


    def test_names():
        assert Server.__name__ == "Server"
        assert not hasattr(nemo_gym, "BESIDE")
    """
    write_server(tmp_path, name, METRICS, [row("?")], files={"tests/test_app.py": tests})
    (tmp_path / "nemo_gym").mkdir()
    (tmp_path / "nemo_gym" / "__init__.py").write_text("BESIDE = True\n")
    which = f"--resources-server {name}" if name == "mcqa" else ""  # without a name, all servers are tested
    assert typed(f"gym env test {which}") == 0
    assert "1 passed" in capfd.readouterr().out


def test_a_server_that_already_runs_is_named_by_its_url(tmp_path: Path) -> None:
    write_server(tmp_path, "counter", COUNTER, counter_rows(1))
    path = "resources_servers/counter/configs/counter.yaml,responses_api_models/local/configs/local.yaml"
    launch = wire(read_config([f"+config_paths=[{path}]", "++counter.resources_servers.counter.url=http://h:1"]))
    servers = {server.name: server for server in plan_of(launch).servers}
    assert "counter" not in servers
    assert servers["counter_simple_agent"].resources == "http://h:1"


def test_servers_of_one_name_in_two_checkouts_do_not_mix_in_one_process(tmp_path: Path) -> None:
    for word in ("yes", "no"):
        code = METRICS.replace('"yes" in', f'"{word}" in')
        write_server(tmp_path / word, "twice", code, [row("Say yes.")])
    answers("yes")
    for word, reward in (("yes", 1.0), ("no", 0.0), ("yes", 1.0)):
        assert run_of("twice", f"--search-dir {word}") == 0
        assert rewards() == [reward]


def test_an_implementation_cannot_leave_its_checkout(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text("raise SystemExit('this must not run')")
    with pytest.raises(UserError, match="there is no resources server"):
        wire(read_config(initial={"x": {"resources_servers": {"../../..": {"entrypoint": "app.py"}}}}))


def test_a_server_on_disk_runs_in_one_process_whatever_its_num_workers(tmp_path: Path) -> None:
    write_server(tmp_path, "counter", COUNTER, counter_rows(1), settings={"num_workers": 4})
    paths = "resources_servers/counter/configs/counter.yaml,responses_api_models/local/configs/local.yaml"
    launch = wire(read_config([f"+config_paths=[{paths}]"]))
    assert plan_of(launch).workers == 1
    assert launch.notes == ["num_workers has no effect: counter runs its own code, whose sessions are in one process"]


def test_the_part_of_a_server_on_disk_names_its_folder_and_its_instance(tmp_path: Path) -> None:
    folder = write_server(tmp_path, "counter", COUNTER, counter_rows(1))
    launch = wire(read_config(initial={"mine": {"resources_servers": {"counter": {"entrypoint": "app.py"}}}}))
    part = launch.servers[0].part
    assert isinstance(part, HostedPart)
    assert (part.environment, part.instance) == (str(folder), "mine")


def test_eval_run_opens_sessions_with_ids_where_an_environment_server_does(tmp_path: Path) -> None:
    folder = write_typed(tmp_path)
    answers("yes")
    assert run_of("typed_words") == 0
    assert sorted(rewards()) == [0.0, 1.0]
    assert (folder / "closed").exists()
