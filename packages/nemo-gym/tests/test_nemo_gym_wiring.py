"""A configuration is translated into what Ludus starts, without secrets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from launches import KEY, MCQA, OPENAI, POLICY, foreign, instance, launched
from ludus_nemo_gym.launch import AgentPart, RemotePart, ResourcesPart
from ludus_nemo_gym.starting import FOREIGN, plan_of

from ludus import UserError
from ludus.environment import Environment
from ludus.folder import folders, read_file
from ludus.models import open_model


@pytest.fixture(autouse=True)
def _in_a_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("name", sorted(folders()))
def test_every_environment_can_be_launched_with_its_own_agent(name: str):
    launch = launched(f"+config_paths=[resources_servers/{name}/configs/{name}.yaml,{OPENAI}]", *POLICY)
    agent = instance(launch, f"{name}_simple_agent").part
    assert instance(launch, name).part == ResourcesPart(name, read_file(folders()[name]).settings)
    assert isinstance(agent, AgentPart)
    own = Environment.load(name).agent
    assert agent.settings.items() <= own.config.model_dump().items()
    assert (agent.resources, agent.model) == (name, "policy_model")
    assert launch.notes == []
    servers = {server.name: server for server in plan_of(launch).servers}
    assert servers[f"{name}_simple_agent"].environment == servers[name].environment == name


def test_the_quickstart_starts_three_servers_and_a_head():
    launch = launched(f"+config_paths=[{MCQA},{OPENAI}]", *POLICY)
    assert [each.name for each in launch.servers] == ["mcqa", "mcqa_simple_agent", "policy_model"]
    assert (launch.head_host, launch.head_port) == ("127.0.0.1", 11000)
    assert all((each.host, each.port, each.num_workers) == ("127.0.0.1", None, 1) for each in launch.servers)


def test_hosts_ports_and_workers_reach_the_plan():
    block = "mcqa.resources_servers.mcqa"
    launch = launched(
        "+config_paths=[resources_servers/mcqa/configs/resources_only.yaml]",
        "+default_host=127.0.0.2",
        f"+{block}.port=4321",
        f"+{block}.num_workers=3",
        "+head_server={host: 127.0.0.3, port: 12345}",
        "+port_range_low=5000",
        "+port_range_high=5999",
    )
    mcqa = instance(launch, "mcqa")
    assert (mcqa.host, mcqa.port, mcqa.num_workers) == ("127.0.0.2", 4321, 3)
    assert (launch.head_host, launch.head_port, launch.ports) == ("127.0.0.3", 12345, (5000, 5999))
    plan = plan_of(launch)
    assert (plan.host, plan.head_port, plan.workers) == ("127.0.0.3", 12345, 3)
    assert plan.servers[0].port == 4321


def test_ports_of_a_range_are_all_different():
    arguments = ["+port_range_low=21000", "+port_range_high=21999"]
    plan = plan_of(launched(f"+config_paths=[{MCQA},{OPENAI}]", *POLICY, *arguments))
    ports = [server.port for server in plan.servers]
    assert len(set(ports)) == 3
    assert all(21000 <= port <= 21999 for port in ports)


@pytest.mark.parametrize("argument", ["+head_server.port=high", "+port_range_low=0", "+head_server.port=true"])
def test_an_invalid_port_is_reported(argument: str):
    with pytest.raises(UserError, match="is not a port from [01] to 65535"):
        launched(f"+config_paths=[{MCQA},{OPENAI}]", *POLICY, argument)


def test_settings_reach_the_environment_and_unknown_ones_are_noted():
    block = "mcqa.resources_servers.mcqa"
    arguments = [f"+{block}.grading_mod=x", f"+{block}.grading_mode=lenient_boxed", f"+{block}.compat=true"]
    launch = launched(f"+config_paths=[{MCQA},{OPENAI}]", *POLICY, *arguments)
    part = instance(launch, "mcqa").part
    assert isinstance(part, ResourcesPart)
    assert part.settings == {"grading_mode": "lenient_boxed", "compat": True}
    assert launch.notes == ["mcqa: resources server setting grading_mod has no effect here. Did you mean grading_mode?"]
    served = {server.name: server.settings for server in plan_of(launch).servers}
    settings = {"resources.grading_mode": "lenient_boxed", "resources.compat": True}
    assert served["mcqa"] == settings
    assert served["mcqa_simple_agent"] == {**settings, "agent.max_steps": 1}
    Environment.load("mcqa").configure(served["mcqa_simple_agent"])


def test_a_secret_that_is_no_setting_becomes_a_variable():
    launch = launched(
        f"+config_paths=[{MCQA},{OPENAI}]", *POLICY, "+mcqa.resources_servers.mcqa.google_api_key=AIza1234"
    )
    assert launch.secrets["GOOGLE_API_KEY"] == "AIza1234"
    assert "AIza1234" not in repr(launch)


def test_a_judge_gets_the_settings_of_the_model_it_names():
    path = "resources_servers/math_with_judge/configs/math_stack_overflow.yaml"
    judge = {"responses_api_models": {"vllm_model": {"base_url": "http://j/v1", "api_key": KEY, "model": "j"}}}
    name = "++math_with_judge.resources_servers.math_with_judge.judge_model_server.name=the_judge"
    launch = launched(f"+config_paths=[{path},{OPENAI}]", *POLICY, name, tree={"the_judge": judge})
    part = instance(launch, "math_with_judge").part
    assert isinstance(part, ResourcesPart)
    assert part.settings["should_use_judge"] is True
    assert part.settings["judge"] == "vllm"
    assert part.settings["judge_settings"] == {
        "model": "j",
        "base_url": "http://j/v1",
        "api_key_env": "LUDUS_KEY_THE_JUDGE",
    }
    open_model(part.settings["judge"], part.settings["judge_settings"])


NEMO_GYM_FILE = """
config_paths: [responses_api_models/vllm_model/configs/vllm_model.yaml]
math_judged:
  resources_servers:
    math_with_judge:
      entrypoint: app.py
      judge_model_server: {type: responses_api_models, name: policy_model}
      judge_responses_create_params: {input: [], temperature: 0}
      should_use_judge: false
      library_verifier_max_concurrency: 32
      domain: math
      verified: true
math_judged_simple_agent:
  responses_api_agents:
    simple_agent:
      entrypoint: app.py
      resources_server: {type: resources_servers, name: math_judged}
      model_server: {type: responses_api_models, name: policy_model}
      datasets:
      - {name: train, type: train, license: TBD, jsonl_fpath: data/train.jsonl, num_repeats: 1}
"""


def test_a_configuration_file_of_nemo_gym_works(tmp_path: Path):
    (tmp_path / "theirs.yaml").write_text(NEMO_GYM_FILE)
    launch = launched("+config_paths=[theirs.yaml]", *POLICY)
    part = instance(launch, "math_judged").part
    assert isinstance(part, ResourcesPart)
    assert part.environment == "math_with_judge"
    assert part.settings["judge_responses_create_params"] == {"temperature": 0}
    assert launch.notes == ["math_judged: resources server setting library_verifier_max_concurrency has no effect here"]
    for server in plan_of(launch).servers:
        if server.environment is not None:
            Environment.load(server.environment).configure(server.settings)


TEXT_TO_SQL_FILE = """
config_paths: [responses_api_models/vllm_model/configs/vllm_model.yaml]
text_to_sql:
  resources_servers:
    text_to_sql:
      entrypoint: app.py
      judge_model_server: {type: responses_api_models, name: policy_model}
      judge_responses_create_params: {input: [], temperature: 0}
      judge_endpoint_max_concurrency: null
      judge_equal_label: '[[A=B]]'
      judge_not_equal_label: '[[A!=B]]'
      check_twice_swap: true
      reward_if_swap_fails: 0.0
      domain: coding
"""


def test_a_configuration_file_of_text_to_sql_keeps_its_judge_and_its_settings(tmp_path: Path):
    (tmp_path / "theirs.yaml").write_text(TEXT_TO_SQL_FILE)
    launch = launched("+config_paths=[theirs.yaml]", *POLICY)
    part = instance(launch, "text_to_sql").part
    assert isinstance(part, ResourcesPart)
    assert part.environment == "text_to_sql"
    assert part.settings["judge"] == "vllm"
    assert part.settings["check_twice_swap"] is True
    assert launch.notes == []
    for server in plan_of(launch).servers:
        if server.environment is not None:
            Environment.load(server.environment).configure(server.settings)


def test_a_prompt_file_is_found_in_the_servers_folder_of_a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = tmp_path / "resources_servers" / "equivalence_llm_judge"
    (folder / "prompt_templates").mkdir(parents=True)
    (folder / "prompt_templates" / "judge.txt").write_text("{question} {expected_answer} {generated_answer}")
    block = "equivalence_llm_judge.resources_servers.equivalence_llm_judge.judge_prompt_template_fpath"
    path = "resources_servers/equivalence_llm_judge/configs/equivalence_llm_judge.yaml"
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    for root in (tmp_path, tmp_path / "elsewhere" / ".."):
        monkeypatch.setenv("NEMO_GYM_EXTRA_ROOTS", str(root))
        launch = launched(f"+config_paths=[{path},{OPENAI}]", *POLICY, f"++{block}=prompt_templates/judge.txt")
        part = instance(launch, "equivalence_llm_judge").part
        assert isinstance(part, ResourcesPart)
        found = Path(part.settings["judge_prompt_template_fpath"])
        assert found.is_absolute()
        assert found.read_text().startswith("{question}")


def test_the_error_for_an_unknown_server_names_known_ones():
    with pytest.raises(UserError, match=r"theirs: there is no resources server sudoku_xl. The closest of \d+: "):
        launched(tree=foreign())
    with pytest.raises(UserError, match=r"theirs: there is no agent sudoku_xl. Known: .*simple_agent"):
        launched(tree=foreign("responses_api_agents"))


def test_a_server_that_runs_elsewhere_is_named_by_its_address(tmp_path: Path):
    for where in ({"url": "http://h:1/"}, {"host": "h", "port": 1}):
        assert instance(launched(tree=foreign(**where)), "theirs").part == RemotePart("http://h:1")


def test_the_code_of_a_model_is_not_started_but_its_url_can_be_named(tmp_path: Path):
    kind = "responses_api_models"
    code = tmp_path / kind / "sudoku_xl" / "app.py"
    code.parent.mkdir(parents=True)
    code.write_text("raise SystemExit('this must not run')")
    with pytest.raises(UserError, match=r"sudoku_xl/app.py is not Ludus's code.*'\+\+theirs.*url=http://HOST:PORT'"):
        launched(tree=foreign(kind))
    assert instance(launched(tree=foreign(kind, url="http://h:1/")), "theirs").part == RemotePart("http://h:1")


def test_a_ludus_agent_plays_a_foreign_resources_server():
    block = {"resources_server": {"type": "resources_servers", "name": "theirs"}, "max_steps": 3}
    block["model_server"] = {"type": "responses_api_models", "name": "policy_model"}
    agent = {"agent": {"responses_api_agents": {"simple_agent": block}}}
    launch = launched(f"+config_paths=[{OPENAI}]", *POLICY, tree={**foreign(url="http://h:1"), **agent})
    servers = {server.name: server for server in plan_of(launch).servers}
    assert servers.keys() == {"agent", "policy_model"}
    assert servers["agent"].resources == "http://h:1"
    assert servers["agent"].environment == str(FOREIGN)
    assert servers["agent"].settings == {"agent.max_steps": 3}
    assert Environment.load(str(FOREIGN)).name == "foreign"


def test_a_ludus_agent_plays_a_ludus_environment_at_a_url():
    launch = launched(f"+config_paths=[{MCQA},{OPENAI}]", *POLICY, "+mcqa.resources_servers.mcqa.url=http://h:1")
    assert instance(launch, "mcqa").part == RemotePart("http://h:1", "mcqa")
    servers = {server.name: server for server in plan_of(launch).servers}
    assert "mcqa" not in servers
    agent = servers["mcqa_simple_agent"]
    assert (agent.environment, agent.resources) == ("mcqa", "http://h:1")
    assert agent.settings == {"agent.max_steps": 1}


@pytest.mark.parametrize("block", ["mcqa_simple_agent.responses_api_agents.simple_agent.resources_server"])
def test_a_reference_without_a_type_to_a_missing_server_is_reported(block: str):
    with pytest.raises(UserError, match=r"mcqa_simple_agent: resources_server: there is no missing_server"):
        launched(f"+config_paths=[{MCQA},{OPENAI}]", *POLICY, f"+{block}={{type: null, name: missing_server}}")


def test_a_judge_that_is_no_model_is_reported():
    judge = "+math_with_judge.resources_servers.math_with_judge.judge_model_server"
    path = "resources_servers/math_with_judge/configs/math_with_judge.yaml"
    with pytest.raises(UserError, match="math_with_judge: judge_model_server: there is no missing_server"):
        launched(f"+config_paths=[{path},{OPENAI}]", *POLICY, f"{judge}={{name: missing_server}}")


def test_a_foreign_model_server_is_called_as_an_openai_endpoint():
    launch = launched(tree=foreign("responses_api_models", host="h", port=1))
    (server,) = plan_of(launch).servers
    assert server.spec == {"type": "openai", "base_url": "http://h:1/v1", "model": "theirs"}


def test_ludus_environment_is_used_instead_of_an_app_on_disk(tmp_path: Path):
    folder = tmp_path / "resources_servers" / "mcqa"
    (folder / "configs").mkdir(parents=True)
    (folder / "app.py").write_text("raise SystemExit('this must not run')")
    tree = {"mcqa": {"resources_servers": {"mcqa": {"entrypoint": "app.py", "domain": "knowledge"}}}}
    (folder / "configs" / "mcqa.yaml").write_text(yaml.safe_dump(tree))
    launch = launched(f"+config_paths=[{MCQA}]")
    assert instance(launch, "mcqa").part == ResourcesPart("mcqa")
    (note,) = launch.notes
    assert note.startswith("mcqa is Ludus's environment mcqa, not resources_servers/mcqa/app.py")


def test_a_configuration_without_servers_is_reported():
    with pytest.raises(UserError, match="names no server"):
        launched("+limit=3")


def test_the_dictionary_of_nemo_rl_is_a_complete_configuration():
    initial = {
        "config_paths": ["responses_api_models/vllm_model/configs/vllm_model_for_training.yaml", MCQA],
        "policy_model_name": "m",
        "policy_api_key": "dummy_key",
        "policy_base_url": ["http://a/v1", "http://b/v1"],
        "default_host": "127.0.0.1",
        "port_range_low": 5000,
        "port_range_high": 5999,
        "global_aiohttp_connector_limit": 100,
        "global_aiohttp_connector_limit_per_host": 10,
        "ray_head_node_address": "10.0.0.1:6379",
        "head_server": {"host": "0.0.0.0", "port": 6001},
        "uv_venv_dir": "/somewhere",
        "mcqa_simple_agent": {"responses_api_agents": {"simple_agent": {"max_steps": 2}}},
    }
    launch = launched(tree=initial)
    assert (launch.head_host, launch.head_port) == ("0.0.0.0", 6001)
    assert [each.name for each in launch.servers] == ["policy_model", "mcqa", "mcqa_simple_agent"]
    agent = instance(launch, "mcqa_simple_agent").part
    assert isinstance(agent, AgentPart)
    assert agent.settings == {"max_steps": 2}
    assert launch.notes == []


WORKPLACE = "resources_servers/workplace_assistant/configs/workplace_assistant.yaml"


def checkout(folder: Path, tables: str) -> Path:
    """A checkout of NeMo Gym with the configuration and the tables of workplace_assistant."""
    server = folder / "resources_servers" / "workplace_assistant"
    (server / "configs").mkdir(parents=True)
    (server / "app.py").write_text("raise SystemExit\n")
    block = {"entrypoint": "app.py", "domain": "agent"}
    tree = {"office": {"resources_servers": {"workplace_assistant": block}}}
    (server / "configs" / "workplace_assistant.yaml").write_text(yaml.safe_dump(tree))
    shipped = folders()["workplace_assistant"] / "data" / "tables"
    for path in shipped.glob("*.csv"):
        place = "raw" if path.name == "email_addresses.csv" else "processed"
        (server / tables / place).mkdir(parents=True, exist_ok=True)
        (server / tables / place / path.name).write_bytes(path.read_bytes())
    return server


def tables_of(*arguments: str) -> Any:
    part = instance(launched(*arguments), "office").part
    assert isinstance(part, ResourcesPart)
    return part.settings.get("tables")


@pytest.mark.parametrize("place", ["csv_data", "data/csv_data", "data", "."])
@pytest.mark.parametrize("how", ["in the working directory", "in an extra root", "by an absolute path"])
def test_the_tables_of_a_checkout_are_found_beside_its_configuration(
    place: str, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from ludus.environments.workplace_assistant.tables import Tables

    folder = tmp_path / "gym"
    server = checkout(folder, place)
    path = WORKPLACE
    if how == "in the working directory":
        monkeypatch.chdir(folder)
    elif how == "in an extra root":
        monkeypatch.setenv("NEMO_GYM_EXTRA_ROOTS", str(folder))
    else:
        path = str(folder / WORKPLACE)
    found = tables_of(f"+config_paths=[{path}]")
    assert Path(found).is_absolute()
    assert Path(found).resolve().is_relative_to(server.resolve())
    assert len(Tables.load(Path(found)).emails.rows) == 240


def test_tables_that_the_configuration_names_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    checkout(tmp_path / "gym", "csv_data")
    monkeypatch.chdir(tmp_path / "gym")
    override = "++office.resources_servers.workplace_assistant.tables=/elsewhere"
    assert tables_of(f"+config_paths=[{WORKPLACE}]", override) == "/elsewhere"


def test_without_tables_beside_the_configuration_our_own_are_used():
    part = instance(launched(f"+config_paths=[{WORKPLACE},{OPENAI}]", *POLICY), "workplace_assistant").part
    assert isinstance(part, ResourcesPart)
    assert "tables" not in part.settings
