"""A model behind a model server: ours or NeMo Gym's. Each call also sends the exact tokens of the call before it.

The seed, the session and the turn of a call are in a header: NeMo Gym's servers refuse a body with a field outside the
Responses API. They ignore the header, and know a rollout by the cookies that they set in its first call.
"""

from __future__ import annotations

import json
from dataclasses import replace
from hashlib import blake2b
from typing import Any, Literal

from orjson import Fragment

from ludus.http.connection import HttpReply
from ludus.model import Request
from ludus.models.openai import OpenAIModel
from ludus.models.transport import HttpOptions
from ludus.remote.http import CALL
from ludus.response import by_model
from ludus.runtime.encoding import encode
from ludus.token_fields import put_tokens

LONGEST_SESSION = 500
MOST_SESSIONS = 65536


class RemoteModel(OpenAIModel):
    """The model `remote:URL`, where URL is a model server's (`ludus serve` and NeMo Gym print it)."""

    class Config(OpenAIModel.Config):
        """Settings of an endpoint. The server has only one model, so it ignores the name in `model`."""

        model: str = "policy_model"
        api: Literal["auto", "responses", "chat"] = "responses"
        api_key_env: str = "LUDUS_TOKEN"

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._cookies: dict[str, str] = {}

    def _http_options(self) -> HttpOptions:
        return replace(super()._http_options(), channels=True)

    def _responses_body(self, request: Request) -> dict[str, Any]:
        body = super()._responses_body(request)
        if request.tokens is not None:
            last = max((index for index, item in enumerate(request.input) if by_model(item)), default=None)
            if last is not None:
                with_tokens = [request.input[last]]
                put_tokens(with_tokens, request.tokens)
                body["input"] = [*body["input"]]
                body["input"][last] = Fragment(encode(with_tokens[0]))
        return body

    async def _post(self, path: str, request: Request, body: dict[str, Any]) -> HttpReply:
        reply = await super()._post(path, request, body)
        if (cookie := reply.cookie) and request.session is not None:
            self._cookies[request.session] = cookie
            if len(self._cookies) > MOST_SESSIONS:  # drop the oldest session: its rollout has most likely ended
                del self._cookies[next(iter(self._cookies))]
        return reply

    def forget(self, session: str) -> None:
        """Forget the endpoint and the cookies of a finished rollout."""
        super().forget(session)
        self._cookies.pop(session, None)

    def _call_headers(self, request: Request) -> dict[str, str]:
        session = request.session
        cookie = self._cookies.get(session) if session is not None else None
        sent = {"Cookie": cookie} if cookie else {}
        if session is not None and len(session) > LONGEST_SESSION:  # servers limit the size of a header
            session = blake2b(session.encode("utf-8", "replace"), digest_size=16).hexdigest()
        call = {"session": session, "seed": request.seed, "turn": request.turn}
        if session is None or (session.isascii() and session.isprintable()):
            return sent | {CALL: encode(call).decode()}
        # As ASCII without line breaks: a session holds a task's id, which may be any text.
        return sent | {CALL: json.dumps(call)}
