"""A model behind a model server: ours or NeMo Gym's. Each call also sends the exact tokens of the call before it.

The seed, the session and the turn of a call are in a header, because NeMo Gym's servers refuse a request whose body has
a field that is not the Responses API's. They ignore the header.
"""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import Any, Literal

from orjson import Fragment

from ludus.dialects.token_capture import put_tokens
from ludus.model import Request
from ludus.models.openai import OpenAIModel
from ludus.remote.http import CALL
from ludus.response import Item
from ludus.runtime.encoding import encode

LONGEST_SESSION = 500


class RemoteModel(OpenAIModel):
    """The model `remote:URL`, where URL is a model server's (`ludus serve` and NeMo Gym print it)."""

    class Config(OpenAIModel.Config):
        """Settings of an endpoint. The server has only one model, so it ignores the name in `model`."""

        model: str = "policy_model"
        api: Literal["auto", "responses", "chat"] = "responses"
        api_key_env: str = "LUDUS_TOKEN"

    def _responses_body(self, request: Request) -> dict[str, Any]:
        body = super()._responses_body(request)
        if request.tokens is not None:
            last = max((index for index, item in enumerate(request.input) if _by_model(item)), default=None)
            if last is not None:
                with_tokens = [request.input[last]]
                put_tokens(with_tokens, request.tokens)
                body["input"] = [*body["input"]]
                body["input"][last] = Fragment(encode(with_tokens[0]))
        return body

    def _call_headers(self, request: Request) -> dict[str, str]:
        session = request.session
        if session is not None and len(session) > LONGEST_SESSION:  # servers limit the size of a header
            session = blake2b(session.encode("utf-8", "replace"), digest_size=16).hexdigest()
        # As ASCII without line breaks: a session is made of a task's id, which may hold any text.
        return {CALL: json.dumps({"session": session, "seed": request.seed, "turn": request.turn})}


def _by_model(item: Item) -> bool:
    """Whether the model wrote an item."""
    return item.get("type", "message") in ("function_call", "reasoning") or item.get("role") == "assistant"
