"""Translates NeMo Gym's model servers into Ludus's models: the implementations, and the names of their fields."""

from __future__ import annotations

from typing import Any

from ludus.errors import UserError, did_you_mean
from ludus.model import ModelConfig
from ludus.models import KINDS
from ludus_nemo_gym.launch import ModelPart
from ludus_nemo_gym.names import SERVER_FIELDS
from ludus_nemo_gym.trees import Tree

_POLICY = {"base_url": "${policy_base_url}", "api_key": "${policy_api_key}", "model": "${policy_model_name}"}
_OPENAI_POLICY = {f"openai_{key}" if key != "model" else "openai_model": value for key, value in _POLICY.items()}

#: The content of each implementation's configuration file.
MODEL_CONFIGS: dict[str, Tree] = {
    "openai_model": _OPENAI_POLICY,
    "azure_openai_model": _OPENAI_POLICY | {"default_query": {"api-version": "2025-04-01-preview"}},
    "inference_provider": _POLICY,
    "litellm_model": _POLICY,
    "vllm_model": _POLICY | {"return_token_id_information": False, "uses_reasoning_parser": True},
    "local": {},
    "scripted": {"script": "${policy_model_name}"},
    "replay": {"path": "${policy_model_name}"},
    "transformers": {"path": "${policy_model_name}"},
}

#: Implementations that start vLLM, which Ludus does not do.
STARTS_VLLM = ("local_vllm_model", "local_vllm_model_proxy")


def model_part(instance: str, implementation: str, block: Tree) -> ModelPart | None:
    """A model server's block as a Ludus model; None for an unknown implementation."""
    fields = {key: value for key, value in block.items() if key not in SERVER_FIELDS and value is not None}
    if implementation in STARTS_VLLM:
        hint = "Start vLLM yourself, and name it with vllm_model and ++policy_base_url=URL"
        raise UserError(f"{instance}: {implementation} would start vLLM, which Ludus does not do", hint)
    if implementation in KINDS and implementation not in ("openai", "azure", "vllm", "sglang"):
        return ModelPart({"type": implementation, **fields})
    if implementation not in MODEL_CONFIGS and implementation not in KINDS:
        return None
    return _endpoint(instance, implementation, fields)


def _endpoint(instance: str, implementation: str, fields: Tree) -> ModelPart:
    """A model behind HTTP."""
    named = {
        name: _first(fields, name, f"openai_{name}", f"{implementation}_{name}") for name in ("base_url", "api_key")
    }
    name = _first(fields, "model", "openai_model", "model_name")
    if not isinstance(name, str) or not name:
        raise UserError(f"{instance} names no model", "Set it with: ++policy_model_name=NAME")
    block: Tree = {"type": _kind(implementation), "model": name, "base_url": _urls(instance, named["base_url"])}
    part = ModelPart(block, bool(fields.pop("return_token_id_information", False)), _text(named["api_key"]))
    if implementation == "inference_provider":
        block["api"] = "chat"
    elif implementation == "azure_openai_model":
        block["api_version"] = (fields.pop("default_query", None) or {}).get("api-version")
    elif implementation == "litellm_model":
        _litellm(instance, block)
    elif block["type"] == "vllm":
        _vllm(block, fields, part.tokens)
    known = _config_of(block["type"]).model_fields
    for key, value in fields.items():
        if key in known and key not in block:
            block[key] = value
        else:
            part.unknown.append(key)
    part.block = {key: value for key, value in block.items() if value is not None}
    return part


def _vllm(block: Tree, fields: Tree, tokens: bool) -> None:
    """vLLM's own settings: reasoning, sampling that overrides the request, and token ids of earlier turns."""
    if "uses_reasoning_parser" in fields:
        block["reasoning"] = "reasoning_content" if fields.pop("uses_reasoning_parser") else "think"
    if overrides := fields.pop("sampling_overrides", None):
        block["extra_body"] = {**(fields.pop("extra_body", None) or {}), **overrides}
    if tokens:
        block["prefix"] = "message"


def _litellm(instance: str, block: Tree) -> None:
    """Without a base_url the model's name starts with its provider. Ludus knows two providers: openai and azure."""
    provider, slash, name = block["model"].partition("/")
    if slash and provider in ("openai", "azure"):
        block |= {"type": provider, "model": name}
    elif block["base_url"] is None:
        hint = "Set the provider's OpenAI-compatible address: ++policy_base_url=URL"
        raise UserError(f"{instance}: the provider of {block['model']} is unknown to Ludus", hint)


def _kind(implementation: str) -> str:
    if implementation in KINDS:
        return "vllm" if implementation == "sglang" else implementation
    return {"vllm_model": "vllm", "azure_openai_model": "azure"}.get(implementation, "openai")


def _config_of(kind: str) -> type[ModelConfig]:
    from ludus.models.azure import AzureModel
    from ludus.models.openai import OpenAIModel
    from ludus.models.vllm import VllmModel

    models: dict[str, type[OpenAIModel]] = {"openai": OpenAIModel, "azure": AzureModel, "vllm": VllmModel}
    return models[kind].Config


def _urls(instance: str, base_url: Any) -> str | list[str] | None:
    """One URL, or several that serve the same model."""
    urls = base_url if isinstance(base_url, list) else [base_url] if base_url else []
    for url in urls:
        if not isinstance(url, str) or not url.startswith(("http://", "https://")):
            raise UserError(
                f"{instance}: base_url {url!r:.80} is not a URL", "Example: ++policy_base_url=http://HOST/v1"
            )
    return None if not urls else urls[0] if len(urls) == 1 else urls


def _first(fields: Tree, *names: str) -> Any:
    """The field under the first of several names. Removes all of them."""
    values = [fields.pop(name) for name in names if name in fields]
    return values[0] if values else None


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def unknown_model(instance: str, implementation: str) -> UserError:
    """The error for an implementation that Ludus does not have."""
    hint = did_you_mean(implementation, MODEL_CONFIGS)
    return UserError(f"{instance}: there is no model server {implementation}", hint)
