"""`nemo_gym.global_config`, and configurations with environment servers."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from ludus_nemo_gym.config import read_config
from ludus_nemo_gym.preparing import prepare_data
from ludus_nemo_gym.wiring import wire
from nemo_gym import global_config
from nemo_gym.config_types import (
    AgentWithoutEnvironmentServerError,
    DatasetConfig,
    UnsupportedAgentPairingError,
    UnsupportedModelPairingError,
)
from nemo_gym.global_config import (
    GlobalConfigDictParser,
    GlobalConfigDictParserConfig,
    find_open_port,
    get_first_server_config_dict,
    get_global_config_dict,
    get_hf_token,
    maybe_get_global_config_dict,
)
from nemo_gym.rollout_collection import _environment_server_for_agent

from ludus.errors import UserError

CONFIG = {
    "mcqa": {"resources_servers": {"mcqa": {"entrypoint": "app.py", "domain": "other"}}},
    "mcqa_simple_agent": {
        "responses_api_agents": {
            "simple_agent": {
                "entrypoint": "app.py",
                "resources_server": {"type": "resources_servers", "name": "mcqa"},
                "model_server": {"type": "responses_api_models", "name": "policy_model"},
            }
        }
    },
    "policy_model": {
        "responses_api_models": {
            "openai_model": {
                "entrypoint": "app.py",
                "openai_base_url": "http://127.0.0.1:1/v1",
                "openai_api_key": "key",
                "openai_model": "model",
            }
        }
    },
}
RELAY = {
    "environment_servers": {
        "legacy_agent": {
            "entrypoint": "app.py",
            "agent_server": {"type": "responses_api_agents", "name": "mcqa_simple_agent"},
        }
    }
}


@pytest.fixture(autouse=True)
def bare(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.argv", ["prog"])
    for name in (
        "NEMO_GYM_EXTRA_ROOTS",
        "NEMO_GYM_CONFIG_DICT",
        "NEMO_GYM_ALLOW_UNSUPPORTED_PAIRING",
        "POLICY_BASE_URL",
        "POLICY_API_KEY",
    ):
        monkeypatch.delenv(name, raising=False)


def test_every_key_name_is_what_rows_and_configurations_say():
    names = {name: value for name, value in vars(global_config).items() if name.endswith("_KEY_NAME")}
    assert names == {
        "TASK_INDEX_KEY_NAME": "_ng_task_index",
        "ROLLOUT_INDEX_KEY_NAME": "_ng_rollout_index",
        "ATTEMPT_INDEX_KEY_NAME": "_ng_attempt_index",
        "ROLLOUT_ID_KEY_NAME": "_ng_rollout_id",
        "AGENT_REF_KEY_NAME": "agent_ref",
        "SKILLS_REF_KEY_NAME": "skills_ref",
        "TASK_SOURCE_KEY_NAME": "task_source",
        "HEAD_SERVER_KEY_NAME": "head_server",
        "HF_TOKEN_KEY_NAME": "hf_token",
        "CACHE_DIR_KEY_NAME": "cache_dir",
        "RESULTS_DIR_KEY_NAME": "results_dir",
        "DISALLOWED_PORTS_KEY_NAME": "disallowed_ports",
        "OBSERVABILITY_ENABLED_KEY_NAME": "observability_enabled",
        "POLICY_BASE_URL_KEY_NAME": "policy_base_url",
        "POLICY_API_KEY_KEY_NAME": "policy_api_key",
        "POLICY_MODEL_NAME_KEY_NAME": "policy_model_name",
    }


def test_the_configuration_always_has_a_head_and_absolute_folders():
    config = get_global_config_dict()
    assert (config.head_server.host, config.head_server.port) == ("127.0.0.1", 11000)
    assert Path(config.results_dir).is_absolute()
    assert Path(config.cache_dir).name == "cache"
    given = GlobalConfigDictParserConfig(initial_global_config_dict={"results_dir": "mine"})
    assert GlobalConfigDictParser().parse(given).results_dir == str(Path("mine").absolute())


def test_a_configuration_that_a_program_reads_is_its_own_from_then_on(tmp_path):
    program = """
import os
from nemo_gym.global_config import *
from nemo_gym.server_utils import get_server_url
server = {"counter": {"resources_servers": {"counter": {"host": "127.0.0.1", "port": 1234}}}}
config = get_global_config_dict(GlobalConfigDictParserConfig(initial_global_config_dict=server))
assert get_global_config_dict() is maybe_get_global_config_dict() is config
print(get_server_url("counter"))
os.environ["NEMO_GYM_CONFIG_DICT"] = "hf_token: of the server"
print(get_hf_token())
"""
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines() == ["http://127.0.0.1:1234", "of the server"]


def test_a_servers_process_reads_its_configuration_from_the_environment(monkeypatch):
    assert maybe_get_global_config_dict() is None
    assert get_hf_token() is None
    monkeypatch.setenv("NEMO_GYM_CONFIG_DICT", "hf_token: secret")
    assert get_global_config_dict() == maybe_get_global_config_dict() == {"hf_token": "secret"}
    assert get_hf_token() == "secret"


def test_parsed_servers_have_addresses_that_differ():
    config = GlobalConfigDictParser().parse(
        GlobalConfigDictParserConfig(
            initial_global_config_dict={**CONFIG, "relay": RELAY, "port_range_low": 12000, "port_range_high": 12999}
        )
    )
    blocks = [get_first_server_config_dict(config, name) for name in (*CONFIG, "relay")]
    assert {block.host for block in blocks} == {"127.0.0.1"}
    assert len({block.port for block in blocks}) == 4
    assert all(12000 <= block.port <= 12999 for block in blocks)


@pytest.mark.parametrize(
    ("agent", "kind", "relay"),
    [
        ("mcqa_simple_agent", "simple_agent", "mcqa_environment_server"),
        ("my_agent", "simple_agent", "my_environment_server"),
        ("player", "simple_agent", "player_environment_server"),
        ("simple_agent", "simple_agent", "simple_environment_server"),
    ],
)
def test_an_agent_without_an_environment_server_gets_a_relay_with_one_warning(agent, kind, relay):
    tree = {agent: {"responses_api_agents": {kind: {"entrypoint": "app.py"}}}}
    with pytest.warns(DeprecationWarning, match=f"fronts {agent}") as warned:
        config = GlobalConfigDictParser().parse(GlobalConfigDictParserConfig(initial_global_config_dict=tree))
    assert len(warned) == 1
    assert _environment_server_for_agent(config, agent) == relay
    assert list(config[relay].environment_servers) == ["legacy_agent"]
    strict = {**tree, "error_on_agent_without_environment_server": True}
    with pytest.raises(AgentWithoutEnvironmentServerError, match=agent):
        GlobalConfigDictParser().parse_no_environment(strict)


def test_a_pairing_that_a_resources_server_does_not_allow_is_an_error(monkeypatch):
    tree = {**CONFIG, "relay": RELAY}
    block = {**CONFIG["mcqa"]["resources_servers"]["mcqa"]}
    tree["mcqa"] = {"resources_servers": {"mcqa": block}}
    parse = GlobalConfigDictParser().parse_no_environment
    block["allowed_agents"] = ["simple_agent"]
    parse(tree)
    block["allowed_agents"] = ["gymnasium_agent"]
    with pytest.raises(UnsupportedAgentPairingError, match="does not allow the agent mcqa_simple_agent"):
        parse(tree)
    parse({**tree, "allow_unsupported_pairing": True})
    monkeypatch.setenv("NEMO_GYM_ALLOW_UNSUPPORTED_PAIRING", "1")
    parse(tree)
    monkeypatch.delenv("NEMO_GYM_ALLOW_UNSUPPORTED_PAIRING")
    del block["allowed_agents"]
    block["allowed_model_types"] = ["vllm_model"]
    with pytest.raises(UnsupportedModelPairingError, match="only vllm_model"):
        parse(tree)


def test_a_configuration_without_a_model_parses():
    model = {"openai_model": {"entrypoint": "app.py", "openai_base_url": "${policy_base_url}"}}
    config = GlobalConfigDictParser().parse_no_environment(
        {**GlobalConfigDictParserConfig.NO_MODEL_GLOBAL_CONFIG_DICT, "policy_model": {"responses_api_models": model}}
    )
    assert config.policy_model.responses_api_models.openai_model.openai_base_url == ""


def test_the_file_of_settings_can_be_skipped(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "env.yaml").write_text("hf_token: secret")

    def token(**options) -> str | None:
        sources = GlobalConfigDictParserConfig(initial_global_config_dict={}, skip_load_from_cli=True, **options)
        return GlobalConfigDictParser().parse(sources).get("hf_token")

    assert token() == "secret"
    assert token(skip_load_from_dotenv=True) is None


def test_a_free_port_lies_in_the_configured_range(monkeypatch):
    monkeypatch.setenv("NEMO_GYM_CONFIG_DICT", "{port_range_low: 13000, port_range_high: 13099}")
    assert 13000 <= find_open_port() <= 13099
    with pytest.raises(RuntimeError, match="port_range_low"):
        find_open_port(disallowed_ports=range(13000, 13100))


def test_a_relay_changes_nothing_about_what_starts():
    tree = {**CONFIG, "mcqa_environment_server": RELAY}
    launch = wire(read_config([], initial=tree))
    assert [instance.name for instance in launch.servers] == list(CONFIG)
    assert not [note for note in launch.notes if "environment server" in note]


def test_another_environment_server_is_named_in_a_note():
    block = {"single_agent_turn": RELAY["environment_servers"]["legacy_agent"]}
    launch = wire(read_config([], initial={**CONFIG, "turns": {"environment_servers": block}}))
    assert [instance.name for instance in launch.servers] == list(CONFIG)
    notes = [note for note in launch.notes if note.startswith("turns")]
    assert notes == [
        "turns: Ludus starts no environment server single_agent_turn; rows go straight to mcqa_simple_agent"
    ]


def test_a_dataset_of_an_environment_server_belongs_to_the_agent_behind_it(tmp_path):
    rows = tmp_path / "rows.jsonl"
    rows.write_text(json.dumps({"responses_create_params": {"input": "hi"}}) + "\n")
    dataset = {"name": "rows", "type": "train", "jsonl_fpath": str(rows), "license": "MIT"}
    relay = {**RELAY["environment_servers"]["legacy_agent"], "datasets": [dataset]}
    tree = {**CONFIG, "front": {"environment_servers": {"legacy_agent": relay}}}
    prepare_data(read_config([], initial=tree), "train_preparation", tmp_path / "out")
    (row,) = map(json.loads, (tmp_path / "out" / "train.jsonl").read_text().splitlines())
    assert row["agent_ref"]["name"] == "mcqa_simple_agent"
    relay["user"] = {"type": "responses_api_agents", "name": "other"}
    with pytest.raises(UserError, match="which agent plays it"):
        prepare_data(read_config([], initial=tree, check=False), "train_preparation", tmp_path / "out")


def test_a_dataset_may_name_its_taskset_agent_and_script():
    dataset = DatasetConfig(
        name="d", type="benchmark", jsonl_fpath="d.jsonl", taskset="t", agent="a", prepare_script="prepare.py"
    )
    assert (dataset.taskset, dataset.agent, dataset.prepare_dependencies) == ("t", "a", None)


@pytest.mark.parametrize("path", ["resources_servers/mine/configs/mine.yaml", "configs/mine.yaml"])
def test_a_configuration_is_found_from_the_folder_of_its_server(tmp_path, monkeypatch, path):
    server = tmp_path / "resources_servers" / "mine"
    (server / "configs").mkdir(parents=True)
    (server / "app.py").write_text("")
    block = {"mine": {"resources_servers": {"mine": {"entrypoint": "app.py", "domain": "other", "level": 3}}}}
    (server / "configs" / "mine.yaml").write_text(json.dumps(block))
    monkeypatch.chdir(server)
    config = GlobalConfigDictParser().parse_no_environment({"config_paths": [path]})
    assert get_first_server_config_dict(config, "mine").level == 3
