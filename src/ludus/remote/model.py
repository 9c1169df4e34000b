"""A model behind one of our model servers. Each call also sends the seed, the session and the exact tokens."""

from __future__ import annotations

from typing import Any, Literal

from orjson import Fragment

from ludus.dialects.token_capture import put_tokens
from ludus.model import Request
from ludus.models.openai import OpenAIModel
from ludus.response import Item
from ludus.runtime.encoding import encode


class RemoteModel(OpenAIModel):
    """The model `remote:URL`, where URL is a model server's (`ludus serve` prints it)."""

    class Config(OpenAIModel.Config):
        """Settings of an endpoint. The server has only one model, so it ignores the name in `model`."""

        model: str = "policy_model"
        api: Literal["auto", "responses", "chat"] = "responses"
        api_key_env: str = "LUDUS_TOKEN"

    def _responses_body(self, request: Request) -> dict[str, Any]:
        body = super()._responses_body(request)
        body["ludus"] = {"session": request.session, "seed": request.seed, "turn": request.turn}
        if request.tokens is not None:
            last = max((index for index, item in enumerate(request.input) if _by_model(item)), default=None)
            if last is not None:
                with_tokens = [request.input[last]]
                put_tokens(with_tokens, request.tokens)
                body["input"] = [*body["input"]]
                body["input"][last] = Fragment(encode(with_tokens[0]))
        return body


def _by_model(item: Item) -> bool:
    """Whether the model wrote an item."""
    return item.get("type", "message") in ("function_call", "reasoning") or item.get("role") == "assistant"
