"""The policy of a TRL trainer as one of our models: its live weights in this process, or its vLLM server."""

from __future__ import annotations

from typing import Any

from ludus.errors import UserError
from ludus.model import Model


def policy_of(trainer: Any, max_batch: int) -> Model:
    """The model that generates for a trainer."""
    args = trainer.args
    if getattr(args, "use_vllm", False):
        if args.vllm_mode != "server":
            raise UserError("vLLM in the trainer's process cannot be shared", 'Set vllm_mode="server"')
        return vllm_policy(args.vllm_server_base_url or f"http://{args.vllm_server_host}:{args.vllm_server_port}")
    from ludus_transformers.model import TransformersModel

    weights = trainer.accelerator.unwrap_model(trainer.model)
    settings = TransformersModel.Config(max_batch=max_batch, chat_template_kwargs=args.chat_template_kwargs or {})
    return TransformersModel(weights, trainer.processing_class, policy_version=0, config=settings)


def vllm_policy(url: str, name: str | None = None) -> Model:
    """A vLLM server that returns token ids and the logprobs of the sampled distribution."""
    from ludus.models.vllm import VllmModel

    base = url.rstrip("/").removesuffix("/v1")
    return VllmModel(VllmModel.Config(base_url=f"{base}/v1", model=name or _served_name(base), logprobs="sampled"))


def _served_name(base: str) -> str:
    import json
    from urllib.request import urlopen

    try:
        with urlopen(f"{base}/v1/models", timeout=60) as reply:
            return str(json.load(reply)["data"][0]["id"])
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise UserError(
            f"the vLLM server at {base} does not name its model: {error}", "Start it, or correct its URL"
        ) from error


def check_sampling(args: Any) -> None:
    """Refuse sampling settings that our models do not have: the logprobs would be those of another policy."""
    plain = {"top_k": (None, 0, -1), "min_p": (None, 0.0), "repetition_penalty": (None, 1.0)}
    for name, values in plain.items():
        if getattr(args, name, None) not in values:
            raise UserError(
                f"{name}={getattr(args, name)} is not supported with rollouts of Ludus", f"Leave {name} out"
            )
    if getattr(args, "generation_kwargs", None):
        raise UserError("generation_kwargs are not supported with rollouts of Ludus", "Leave generation_kwargs out")
