"""A model server: any model of ours behind the three dialects that clients speak, streamed where they ask for it.

An answer is computed whole and then streamed: the exact tokens of a call are only known at its end, and a rollout has
no use for half an answer. Where the model tells token ids, they sit on the last item of the answer (Responses) or on
the message (Chat), as trainers read them.
"""

from __future__ import annotations

import time
from typing import Any

from ludus.dialects.chat import request_from_chat
from ludus.dialects.messages import request_from_messages
from ludus.dialects.token_capture import tokens_from_items
from ludus.errors import Failure
from ludus.http.app import App, Guard
from ludus.http.messages import Incoming, Refusal, Reply
from ludus.http.replies import TRANSPORT, chat_reply, envelope, messages_reply, responses_reply
from ludus.model import Model, Request
from ludus.serve.openapi import describe_model


class ModelApp(App):
    """A model over HTTP. `name` is what `/v1/models` lists; a request may call it what it likes."""

    def __init__(self, model: Model, *, name: str | None = None, guard: Guard | None = None, seconds: float = 600.0):
        super().__init__(guard)
        self.model = model
        self.name = name or model.name
        self.answer = Answering(model, seconds)
        self.routes |= {
            ("POST", "/v1/responses"): self.responses,
            ("POST", "/v1/chat/completions"): self.chat_completions,
            ("POST", "/v1/messages"): self.messages,
            ("GET", "/v1/models"): self.models,
            ("GET", "/openapi.json"): self.openapi,
        }

    async def responses(self, incoming: Incoming) -> Reply:
        """The Responses API."""
        body = incoming.json()
        response = await incoming.unless_gone(self.answer(incoming, body))
        return responses_reply(body, response)

    async def chat_completions(self, incoming: Incoming) -> Reply:
        """Chat Completions."""
        body = incoming.json()
        response = await incoming.unless_gone(self.answer(incoming, request_from_chat(body)))
        return chat_reply(body, response)

    async def messages(self, incoming: Incoming) -> Reply:
        """Anthropic's Messages."""
        body = incoming.json()
        response = await incoming.unless_gone(self.answer(incoming, request_from_messages(body)))
        return messages_reply(body, response)

    async def models(self, incoming: Incoming) -> Reply:
        """The one model there is."""
        entry = {"id": self.name, "object": "model", "created": 0, "owned_by": "ludus"}
        return Reply.of({"object": "list", "data": [entry]})

    async def openapi(self, incoming: Incoming) -> Reply:
        """The routes."""
        return Reply.of(describe_model(self.name))


class Answering:
    """Turns the body of a Responses request into an answer of a model, with its token fields in place."""

    def __init__(self, model: Model, seconds: float) -> None:
        self._model = model
        self._seconds = seconds

    async def __call__(self, incoming: Incoming, body: dict[str, Any]) -> dict[str, Any]:
        """The answer as a Responses object."""
        given = body.get("input")
        if not isinstance(given, str) and not (isinstance(given, list) and all(isinstance(i, dict) for i in given)):
            raise Refusal.field(["input"], "value_error", "input must be a string or a list of items")
        try:
            items, tokens = (given, None) if isinstance(given, str) else tokens_from_items(given)
        except Failure as error:  # ids that a client sends back are part of the request
            raise Refusal.field(["input"], "value_error", error.cause) from error
        params = {key: value for key, value in body.items() if key not in TRANSPORT and value is not None}
        told = body.get("ludus")
        ours: dict[str, Any] = told if isinstance(told, dict) else {}
        session, seed, turn = ours.get("session"), ours.get("seed"), ours.get("turn")
        request = Request(
            items,
            session=session if isinstance(session, str) else incoming.rollout or incoming.header(b"x-ludus-session"),
            seed=seed if isinstance(seed, int) else None,
            turn=turn if isinstance(turn, int) else _turns(items),
            tokens=tokens,
            deadline=time.perf_counter() + self._seconds,
            params=params,
        )
        response = await self._model.respond(request)
        wanted = self._model.capture_tokens or incoming.wants_tokens or told is not None
        return envelope(response, body, self._model.name, tokens=wanted)


def _turns(items: Any) -> int:
    """How often the model has answered before: a run of its own items counts once."""
    turns, its_own = 0, False
    for item in items if isinstance(items, list) else ():
        mine = item.get("role") == "assistant" or item.get("type") in ("function_call", "reasoning")
        turns += mine and not its_own
        its_own = mine
    return turns
