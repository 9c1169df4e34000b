"""Recipes for trainers that need no adapter: NeMo RL starts our servers, and the calls of notebooks are answered."""

from __future__ import annotations

import json
import runpy
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from serving import served

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "trainers"


def test_the_calls_of_unsloths_notebooks_find_the_server_and_get_rewards(capsys: pytest.CaptureFixture[str]) -> None:
    omegaconf = pytest.importorskip("omegaconf", reason="the notebooks parse the configuration with omegaconf")
    example = runpy.run_path(str(EXAMPLES / "mcqa_unsloth.py"))
    with served("mcqa") as serving:
        example["main"](serving.head_url)
        assert json.loads(capsys.readouterr().out) == [1.0, 0.0]
        text = json.loads(_get(f"{serving.head_url}/global_config_dict_yaml"))
        server = omegaconf.OmegaConf.create(text)["mcqa"].resources_servers["mcqa"]
        assert example["address"]("mcqa", serving.head_url) == f"http://{server.host}:{server.port}"


def _get(url: str) -> bytes:
    from urllib.request import urlopen

    with urlopen(url) as reply:
        body: bytes = reply.read()
    return body


def test_the_recipe_for_nemo_rl_has_its_keys_and_its_config_paths_are_ours() -> None:
    from ludus_nemo_gym.builtin import builtin_config

    recipe: dict[str, Any] = yaml.safe_load((EXAMPLES / "mcqa_nemo_rl.yaml").read_text())
    assert recipe["env"]["should_use_nemo_gym"] is True
    assert recipe["data"]["default"]["env_name"] == "nemo_gym"
    assert recipe["policy"]["generation"]["vllm_cfg"] == {"async_engine": True, "expose_http_server": True}
    for path in recipe["env"]["nemo_gym"]["config_paths"]:
        assert builtin_config(path), path


def test_the_configuration_for_prime_rl_uses_the_taskset_that_is_tested() -> None:
    found = tomllib.loads((EXAMPLES / "mcqa_prime_rl.toml").read_text())
    tested = (ROOT / "tests" / "integrations" / "test_verifiers_taskset.py").read_text()
    for key in ("taskset", "agent"):
        assert f"[env.{key}" in tested
    assert found["env"]["taskset"]["id"] == "nemo_gym"
    assert set(found["env"]["taskset"]["task"]) == {"resources_url"}
