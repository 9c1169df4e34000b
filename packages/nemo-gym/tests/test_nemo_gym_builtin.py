"""NeMo Gym's paths name Ludus's environments, models and agents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ludus_nemo_gym.builtin import builtin_config
from ludus_nemo_gym.config import read_config
from ludus_nemo_gym.names import DOMAINS
from ludus_nemo_gym.search_paths import find_data

from ludus import UserError
from ludus.folder import folders
from ludus.testing import shared_path

ENVIRONMENTS = sorted(folders())
POLICY = ["+policy_base_url=http://127.0.0.1:1/v1", "+policy_api_key=sk-12345678", "+policy_model_name=m"]


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_every_environment_is_found_by_its_path(name: str):
    for path in (f"resources_servers/{name}/configs/{name}.yaml", f"environments/{name}/config.yaml"):
        config = read_config(
            [f"+config_paths=[{path},responses_api_models/openai_model/configs/openai_model.yaml]", *POLICY]
        )
        kinds = {server.name: server for server in config.servers}
        assert kinds[name].kind == "resources_servers"
        assert kinds[name].implementation == name
        assert kinds[name].block["domain"] in DOMAINS
        agent = kinds[f"{name}_simple_agent"].block
        assert agent["resources_server"] == {"type": "resources_servers", "name": name}
        assert agent["model_server"] == {"type": "responses_api_models", "name": "policy_model"}
        for dataset in agent.get("datasets", []):
            assert find_data(dataset["jsonl_fpath"]) is not None


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_resources_only_has_no_agent(name: str):
    tree = builtin_config(f"resources_servers/{name}/configs/resources_only.yaml")
    assert tree is not None
    assert list(tree) == [name]
    assert list(tree[name]) == ["resources_servers"]


def test_every_agent_that_rows_name_is_an_agent_of_their_environment():
    for path in sorted(shared_path("data").glob("*/*.jsonl")):
        for line in path.read_text().splitlines():
            reference = json.loads(line).get("agent_ref")
            if reference:
                tree = builtin_config(f"resources_servers/{path.parent.name}/configs/{path.parent.name}.yaml")
                assert tree is not None
                assert reference["name"] in tree


def test_a_file_with_another_name_adds_an_agent_of_that_name_without_datasets():
    tree = builtin_config("resources_servers/structured_outputs/configs/structured_outputs_json.yaml")
    assert tree is not None
    agents = {name: next(iter(tree[name]["responses_api_agents"].values())) for name in tree if name.endswith("_agent")}
    assert {"structured_outputs_simple_agent", "structured_outputs_json_simple_agent"} <= agents.keys()
    assert [name for name, block in agents.items() if "datasets" in block] == ["structured_outputs_simple_agent"]


def test_the_stack_overflow_variant_needs_a_judge():
    path = "resources_servers/math_with_judge/configs/math_stack_overflow.yaml"
    with pytest.raises(UserError, match=r"judge_model_server.name=VALUE"):
        read_config([f"+config_paths=[{path},responses_api_models/vllm_model/configs/vllm_model.yaml]", *POLICY])


@pytest.mark.parametrize(
    "path",
    [
        "responses_api_models/openai_model/configs/openai_model.yaml",
        "responses_api_models/azure_openai_model/configs/azure_openai_model.yaml",
        "responses_api_models/vllm_model/configs/vllm_model.yaml",
        "responses_api_models/vllm_model/configs/vllm_model_for_training.yaml",
        "responses_api_models/inference_provider/configs/inference_provider.yaml",
        "responses_api_models/litellm_model/configs/litellm_model.yaml",
        "./responses_api_models//local/configs/local.yml",
    ],
)
def test_every_model_file_defines_the_policy_model(path: str):
    config = read_config([f"+config_paths=[{path}]", *POLICY])
    assert [(server.name, server.kind) for server in config.servers] == [("policy_model", "responses_api_models")]


def test_an_agent_file_leaves_the_resources_server_to_the_user():
    tree = builtin_config("responses_api_agents/simple_agent/configs/simple_agent.yaml")
    assert tree is not None
    assert tree["simple_agent"]["responses_api_agents"]["simple_agent"]["resources_server"]["name"] == "???"


@pytest.mark.parametrize(
    ("path", "problem"),
    [
        ("resources_servers/mcqaa/configs/mcqaa.yaml", r"there is no environment mcqaa. Did you mean mcqa\?"),
        (
            "responses_api_models/opnai_model/configs/x.yaml",
            r"no model server opnai_model. Did you mean openai_model\?",
        ),
        ("responses_api_agents/simpl_agent/configs/x.yaml", r"no agent simpl_agent. Did you mean simple_agent\?"),
    ],
)
def test_an_unknown_name_is_an_error_that_suggests_the_nearest_name(path: str, problem: str):
    with pytest.raises(UserError, match=problem):
        builtin_config(path)


@pytest.mark.parametrize("path", ["mcqa.yaml", "configs/mcqa.yaml", "resources_servers/../../etc/passwd", "x/y/z.yaml"])
def test_other_paths_are_not_built_in(path: str):
    assert builtin_config(path) is None


def test_data_is_not_found_outside_an_environments_folder():
    assert find_data("resources_servers/mcqa/data/example.jsonl") is not None
    assert find_data("resources_servers/mcqa/data/../../../environment.py") is None
    assert find_data("resources_servers/mcqa/no.jsonl") is None


def test_an_environment_in_the_working_directory_is_found_by_the_same_path(tmp_path: Path, monkeypatch: Any):
    from ludus.cli.new import write

    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "resources_servers" / "corner_shop"
    folder.mkdir(parents=True)
    write(folder, "corner_shop")
    config = read_config(["+config_paths=[resources_servers/corner_shop/configs/corner_shop.yaml]"], check=False)
    assert [server.name for server in config.servers] == ["corner_shop", "corner_shop_simple_agent"]


def test_a_games_agent_has_the_name_that_published_rows_use():
    assert "blackjack_gymnasium_agent" in (builtin_config("resources_servers/blackjack/configs/blackjack.yaml") or {})
