"""A model behind a model server of ours: seeds, sessions and exact tokens travel with each call."""

from __future__ import annotations

from typing import Any, Literal

from orjson import Fragment

from ludus.dialects.token_capture import put_tokens
from ludus.model import Request
from ludus.models.openai import OpenAIModel
from ludus.response import Item
from ludus.runtime.encoding import encode


class RemoteModel(OpenAIModel):
    """`remote:URL`, where URL is that of a model server (`ludus serve` prints it)."""

    class Config(OpenAIModel.Config):
        """Settings of an endpoint; the server knows only one model, so its name is of no consequence."""

        model: str = "policy_model"
        api: Literal["auto", "responses", "chat"] = "responses"
        api_key_env: str = "LUDUS_TOKEN"

    def _responses_body(self, request: Request) -> dict[str, Any]:
        body = super()._responses_body(request)
        body["ludus"] = {"session": request.session, "seed": request.seed, "turn": request.turn}
        if request.tokens is not None:
            last = max((index for index, item in enumerate(request.input) if _written(item)), default=None)
            if last is not None:
                marked = [request.input[last]]
                put_tokens(marked, request.tokens)
                body["input"] = [*body["input"]]
                body["input"][last] = Fragment(encode(marked[0]))
        return body


def _written(item: Item) -> bool:
    """Whether the model wrote an item."""
    return item.get("type", "message") in ("function_call", "reasoning") or item.get("role") == "assistant"
