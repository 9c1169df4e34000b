"""A vLLM server that holds one LoRA adapter for each version of the policy.

TRL's asynchronous trainer publishes the weights of version 7 as the adapter `trl-policy-v7`, and a request chooses an
adapter by the name of its model. So a call always ends with the weights that it began with, whatever is published
meanwhile. Calls whose adapter is gone fail: let the trainer keep as many versions as calls may be behind.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from ludus.model import Request
from ludus.models.vllm import VllmModel
from ludus.response import Response

#: The adapter of the call that is running.
_ADAPTER: ContextVar[str] = ContextVar("adapter")


class AdapterPolicy(VllmModel):
    """Asks for the adapter of the newest version, and for the model itself before there is one."""

    class Config(VllmModel.Config):
        """`adapter` is what the names of all adapters begin with."""

        adapter: str = "trl-policy"

    config: Config

    async def respond(self, request: Request) -> Response:
        """Answer one request, with the weights that are the newest now."""
        version = self.policy_version
        chosen = _ADAPTER.set(f"{self.config.adapter}-v{version}" if version else self.config.model)
        try:
            response = await super().respond(request)
        finally:
            _ADAPTER.reset(chosen)
        if response.tokens is not None and version is not None:
            response.tokens.policy_version = str(version)
        return response

    def _chat_body(self, request: Request) -> dict[str, Any]:
        return {**super()._chat_body(request), "model": _ADAPTER.get()}
