"""A model server: any model of ours behind the three dialects that clients speak, streamed where they ask for it.

An answer is computed whole and then streamed: the exact tokens of a call are only known at its end, and a rollout has
no use for half an answer. Where the model tells token ids, they sit on the last item of the answer (Responses) or on
the message (Chat), as trainers read them.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any
from uuid import uuid4

from ludus.dialects.chat import request_from_chat
from ludus.dialects.chat_answer import answer_to_chat
from ludus.dialects.chat_stream import chat_chunks
from ludus.dialects.messages import request_from_messages
from ludus.dialects.messages_answer import answer_to_messages
from ludus.dialects.messages_stream import message_events
from ludus.dialects.responses_stream import response_events
from ludus.dialects.sse import encode_event
from ludus.dialects.token_capture import put_tokens, tokens_from_items
from ludus.encoding import encode
from ludus.model import Model, Request
from ludus.outcome import Failure
from ludus.response import Response
from ludus.serve.http import App, Guard
from ludus.serve.messages import EVENTS, Incoming, Refusal, Reply
from ludus.serve.openapi import describe_model

#: The fields of a request that are about the connection and not about the answer.
TRANSPORT = ("input", "model", "stream", "stream_options", "background", "store", "ludus")


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


def envelope(response: Response, body: dict[str, Any], name: str, *, tokens: bool) -> dict[str, Any]:
    """An answer with everything that clients demand of a Responses object, and its token fields if they are wanted."""
    data = {
        "object": "response",
        "status": "completed",
        "incomplete_details": None,
        "error": None,
        "instructions": None,
        "metadata": {},
        "parallel_tool_calls": body.get("parallel_tool_calls", True),
        "temperature": body.get("temperature"),
        "tool_choice": body.get("tool_choice", "auto"),
        "tools": body.get("tools") or [],
        "top_p": body.get("top_p"),
        **response.data,
        "output": list(response.output),
    }
    if data.get("id") in (None, "resp_0"):
        data["id"] = f"resp_{uuid4().hex}"
    data["created_at"] = data.get("created_at") or int(time.time())
    data["model"] = data.get("model") or name
    if tokens and response.tokens is not None:
        put_tokens(data["output"], response.tokens)
    return data


def responses_reply(body: dict[str, Any], response: dict[str, Any]) -> Reply:
    """An answer as the Responses API sends it."""
    if body.get("stream"):
        return _streamed(response_events(response), lambda event: str(event["type"]))
    return Reply(encode(response))


def chat_reply(body: dict[str, Any], response: dict[str, Any]) -> Reply:
    """An answer as Chat Completions sends it."""
    completion = _converted(answer_to_chat, response)
    if not body.get("stream"):
        return Reply(encode(completion))
    options = body.get("stream_options")
    usage = bool(isinstance(options, dict) and options.get("include_usage"))
    return _streamed(chat_chunks(completion, usage=usage), lambda _: None, end=b"data: [DONE]\n\n")


def messages_reply(body: dict[str, Any], response: dict[str, Any]) -> Reply:
    """An answer as Anthropic's Messages sends it."""
    message = _converted(answer_to_messages, response)
    if body.get("stream"):
        return _streamed(message_events(message), lambda event: str(event["type"]))
    return Reply(encode(message))


def _converted(convert: Callable[[dict[str, Any]], dict[str, Any]], response: dict[str, Any]) -> dict[str, Any]:
    """An answer in another dialect. One that cannot be converted is the model's fault, and not the client's."""
    try:
        return convert(response)
    except Failure as error:
        raise Failure("bad_response", error.cause, stage="model") from error


def _streamed(
    events: Iterable[dict[str, Any]], name: Callable[[dict[str, Any]], str | None], end: bytes = b""
) -> Reply:
    async def pieces() -> AsyncIterator[bytes]:
        for event in events:
            yield encode_event(event, name(event))
        if end:
            yield end

    return Reply(kind=EVENTS, headers=[(b"cache-control", b"no-cache")], pieces=pieces())
