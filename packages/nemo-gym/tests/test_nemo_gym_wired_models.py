"""The model servers of a configuration become models of Ludus, and their keys stay hidden."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from launches import KEY, MCQA, OPENAI, POLICY, instance, launched
from ludus_nemo_gym.launch import ModelPart
from ludus_nemo_gym.starting import plan_of

from ludus import UserError
from ludus.models import open_model


@pytest.fixture(autouse=True)
def _in_a_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def model(implementation: str, **fields: Any) -> ModelPart:
    tree = {"policy_model": {"responses_api_models": {implementation: fields}}}
    part = instance(launched(tree=tree), "policy_model").part
    assert isinstance(part, ModelPart)
    return part


def test_a_models_key_is_passed_by_variable_and_not_shown():
    launch = launched(f"+config_paths=[{MCQA},{OPENAI}]", *POLICY)
    part = instance(launch, "policy_model").part
    assert isinstance(part, ModelPart)
    assert part.block["api_key_env"] == "LUDUS_KEY_POLICY_MODEL"
    assert launch.secrets == {"LUDUS_KEY_POLICY_MODEL": KEY}
    assert KEY not in repr(launch)
    assert KEY not in plan_of(launch).model_dump_json()


def test_the_opened_model_sends_the_key(monkeypatch: pytest.MonkeyPatch):
    launch = launched(f"+config_paths=[{OPENAI}]", *POLICY)
    for name, value in launch.secrets.items():
        monkeypatch.setitem(os.environ, name, value)
    part = instance(launch, "policy_model").part
    assert isinstance(part, ModelPart)
    opened: Any = open_model(part.block)
    assert opened.name == "http://127.0.0.1:1/v1#m"
    assert opened._authorisation() == {"Authorization": f"Bearer {KEY}"}


def test_several_urls_and_token_ids_reach_the_model_for_training():
    path = "responses_api_models/vllm_model/configs/vllm_model_for_training.yaml"
    launch = launched(f"+config_paths=[{MCQA},{path}]", *POLICY, "+policy_base_url=[http://a/v1,http://b/v1]")
    part = instance(launch, "policy_model").part
    assert isinstance(part, ModelPart)
    assert part.tokens
    assert part.block == {
        "type": "vllm",
        "model": "m",
        "base_url": ["http://a/v1", "http://b/v1"],
        "reasoning": "reasoning_content",
        "prefix": "message",
        "api_key_env": "LUDUS_KEY_POLICY_MODEL",
    }
    assert plan_of(launch).tokens
    open_model(part.block)


def test_model_servers_become_blocks_for_open_model():
    url = "http://h/v1"
    assert model("inference_provider", base_url=url, model="m").block == {
        "type": "openai",
        "model": "m",
        "base_url": url,
        "api": "chat",
    }
    azure = model("azure_openai_model", openai_base_url=url, openai_model="d", default_query={"api-version": "v"})
    assert azure.block == {"type": "azure", "model": "d", "base_url": url, "api_version": "v"}
    vllm = model("vllm_model", base_url=url, model="m", uses_reasoning_parser=False, sampling_overrides={"top_k": -1})
    assert vllm.block["reasoning"] == "think"
    assert vllm.block["extra_body"] == {"top_k": -1}
    assert model("litellm_model", model="openai/m").block == {"type": "openai", "model": "m"}
    assert model("litellm_model", model="mistral/m", base_url=url).block["model"] == "mistral/m"
    assert model("scripted", script="a.yaml").block == {"type": "scripted", "script": "a.yaml"}
    assert model("local").block == {"type": "local"}
    assert model("sglang", base_url=url, model="m", temperature=0.5).block["temperature"] == 0.5


@pytest.mark.parametrize(
    ("implementation", "fields", "problem"),
    [
        ("litellm_model", {"model": "mistral/m"}, "the provider of mistral/m is unknown to Ludus"),
        ("local_vllm_model", {"model": "m"}, "would start vLLM"),
        ("openai_model", {"openai_base_url": "h/v1", "openai_model": "m"}, "'h/v1' is not a URL"),
        ("openai_model", {"openai_base_url": "http://h"}, "policy_model names no model"),
        ("opena_model", {}, r"no model server opena_model. Did you mean openai_model\?"),
    ],
)
def test_an_invalid_model_is_reported(implementation: str, fields: dict[str, Any], problem: str):
    with pytest.raises(UserError, match=problem):
        model(implementation, **fields)
