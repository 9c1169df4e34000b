"""A model server: any Ludus model in the dialects of Responses, Chat Completions, Messages and Gemini, also streamed.

An answer is computed whole and then streamed: the exact tokens of a call are known only at its end, and a rollout
cannot use half an answer. Token ids are on the last item of the answer (Responses) or on the message (Chat), where
trainers read them.
"""

from __future__ import annotations

import time
from typing import Any

import orjson

from ludus.dialects.client_tools import ClientTools, function_items
from ludus.errors import Failure
from ludus.http.guard import Guard
from ludus.http.messages import Incoming, Refusal, Reply
from ludus.http.model_routes import ModelRoutes
from ludus.http.replies import TRANSPORT, envelope
from ludus.model import Model, Request
from ludus.remote.http import CALL, SESSION
from ludus.response import by_model
from ludus.serve.openapi import describe_model
from ludus.token_fields import tokens_from_items

_SESSION_HEADER, _CALL_HEADER = SESSION.encode(), CALL.encode()


class ModelApp(ModelRoutes):
    """A model over HTTP. `/v1/models` lists it as `name`; the `model` field of a request is ignored."""

    def __init__(self, model: Model, *, name: str | None = None, guard: Guard | None = None, seconds: float = 600.0):
        super().__init__(guard)
        self.model = model
        self.model_name = name or model.name
        self.answer = Answering(model, seconds)
        self.routes["GET", "/openapi.json"] = self.openapi

    async def respond_to(self, incoming: Incoming, body: dict[str, Any]) -> dict[str, Any]:
        """The model's answer, unless the client leaves before."""
        return await incoming.cancel_on_disconnect(self.answer(incoming, body))

    def model_for(self, incoming: Incoming) -> Model:
        """The model."""
        return self.model

    async def openapi(self, incoming: Incoming) -> Reply:
        """The routes."""
        return Reply.of(describe_model(self.model_name))


class Answering:
    """Turns the body of a Responses request into an answer of a model, with its token fields in place."""

    def __init__(self, model: Model, seconds: float) -> None:
        self._model = model
        self._seconds = seconds

    async def __call__(self, incoming: Incoming, body: dict[str, Any]) -> dict[str, Any]:
        """The answer as a Responses object."""
        prompt = body.get("input")
        if not isinstance(prompt, str) and not (isinstance(prompt, list) and all(isinstance(i, dict) for i in prompt)):
            raise Refusal.field(["input"], "value_error", "input must be a string or a list of items")
        try:
            items, tokens = (prompt, None) if isinstance(prompt, str) else tokens_from_items(prompt)
        except Failure as error:  # wrong token ids in the request are the client's mistake
            raise Refusal.field(["input"], "value_error", error.cause) from error
        tools = ClientTools(None if self._model.takes_client_tools else body.get("tools"))
        if isinstance(items, list) and not self._model.takes_client_tools:
            items = function_items(items)
        asked = tools.request(body)
        params = {key: value for key, value in asked.items() if key not in TRANSPORT and value is not None}
        call = incoming.header(_CALL_HEADER)  # sent by a `RemoteModel`
        sent = _fields(call) if call is not None else {}
        session, seed, turn = sent.get("session"), sent.get("seed"), sent.get("turn")
        request = Request(
            items,
            session=session if isinstance(session, str) else incoming.rollout or incoming.header(_SESSION_HEADER),
            seed=seed if isinstance(seed, int) else None,
            turn=turn if isinstance(turn, int) else _turns(items),
            tokens=tokens,
            deadline=time.perf_counter() + self._seconds,
            params=params,
        )
        response = await self._model.respond(request)
        wanted = self._model.capture_tokens or incoming.wants_tokens or call is not None
        return tools.answer(envelope(response, body, self._model.name, tokens=wanted))


def _fields(header: str) -> dict[str, Any]:
    """The fields of a header with a JSON object; empty for any other header."""
    try:
        fields = orjson.loads(header)
    except orjson.JSONDecodeError:
        return {}
    return fields if isinstance(fields, dict) else {}


def _turns(items: Any) -> int:
    """The number of model answers among the items: consecutive items of the model are one answer."""
    turns, after_model = 0, False
    for item in items if isinstance(items, list) else ():
        written = by_model(item)
        turns += written and not after_model
        after_model = written
    return turns
