"""The routes of every server that answers as a model: Responses, Chat Completions, Anthropic Messages and Gemini.

A request becomes a Responses request, and the answer goes back in the client's dialect, as do errors. The proxy of
programs, model servers and agent servers differ only in how they answer a Responses request.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, ClassVar

from ludus.dialects.chat import request_from_chat
from ludus.dialects.errors import Dialect, error_body
from ludus.dialects.gemini import request_from_gemini
from ludus.dialects.messages import request_from_messages
from ludus.dialects.server_tools import split_tools
from ludus.http.app import App, Handler
from ludus.http.body_encoding import decode_body
from ludus.http.growing_requests import GrowingRequests
from ludus.http.guard import Guard
from ludus.http.messages import Headers, Incoming, Refusal, Reply, detail_text
from ludus.http.model_lists import model_entry, model_list
from ludus.http.replies import chat_reply, gemini_reply, messages_reply, responses_reply
from ludus.http.token_counts import count_tokens
from ludus.model import Model
from ludus.runtime.encoding import encode

Body = dict[str, Any]

_GEMINI = re.compile(r"/v1(?:alpha|beta)?/models/(.{1,200}):([A-Za-z]{1,40})")
_GEMINI_ACTIONS = ("generateContent", "streamGenerateContent", "countTokens")
_ONE_MODEL = re.compile(r"/v1(?:alpha|beta)?/models/(.{1,200})")
_STORED = re.compile(r"/v1/responses/([\w.:-]{1,200})")
#: What the server of a model said. A client tries again, or not, as it would there.
_UPSTREAM = re.compile(r"http_([45]\d\d)")
_WITHOUT_V1 = ("/responses", "/chat/completions", "/messages")  # of a client whose base URL lacks it
_NOT_PASSED_ON = ("408", "409", "425")  # a client could take them for its own doing


def dialect_of(incoming: Incoming) -> Dialect | None:
    """The dialect that a client speaks; None for a route of another kind. Lists of models share one path."""
    path = incoming.path
    if path.startswith("/v1/messages"):
        return "messages"
    if path.startswith(("/v1beta/", "/v1alpha/")):
        return "gemini"
    if path.startswith("/v1/models"):
        if b"anthropic-version" in incoming.named:
            return "messages"
        asks_gemini = b"x-goog-api-key" in incoming.named or _GEMINI.fullmatch(path) is not None
        return "gemini" if asks_gemini else "responses"
    if path.startswith("/v1/chat/"):
        return "chat"
    return "responses" if path.startswith("/v1/") or path in _WITHOUT_V1 else None


class ModelRoutes(App):
    """An application with a model's routes. Subclasses override `respond_to`, and what else they know."""

    #: the name of the model in lists
    model_name: str = "policy"
    #: whether tools of every type in a Responses request reach the model, which may have them
    passes_tools_on: bool = True

    _READ: ClassVar[dict[Dialect, Callable[[Any], Body]]] = {
        "responses": lambda body: body,
        "chat": request_from_chat,
        "messages": request_from_messages,
        "gemini": request_from_gemini,
    }
    _WRITE: ClassVar[dict[Dialect, Callable[[Body, Body], Reply]]] = {
        "responses": responses_reply,
        "chat": chat_reply,
        "messages": messages_reply,
    }

    def __init__(self, guard: Guard | None = None) -> None:
        super().__init__(guard)
        self.routes |= {
            ("POST", "/v1/responses"): self._answer,
            ("POST", "/v1/chat/completions"): self._answer,
            ("POST", "/v1/messages"): self._answer,
            ("POST", "/v1/messages/count_tokens"): self._count,
            ("POST", "/v1/responses/input_tokens"): self._count,
            ("GET", "/v1/models"): self._list,
            ("GET", "/v1beta/models"): self._list,
        }

    async def respond_to(self, incoming: Incoming, body: Body) -> Body:
        """The answer to a Responses request, as a Responses object."""
        raise NotImplementedError

    def model_for(self, incoming: Incoming) -> Model | None:
        """The model that would answer a request, to count its tokens."""
        return None

    def cannot_carry(self, incoming: Incoming, tools: list[str]) -> None:
        """Called for a request with tools that no policy can use: refuse it, or return to leave them out."""
        raise Refusal(400, f"this server has no tool {', '.join(tools)}: leave it out of the request")

    def stored_response(self, incoming: Incoming, response_id: str) -> Body | None:
        """An earlier response that the client asked to store."""
        return None

    def read_items(self, items: list[Any]) -> list[Any]:
        """Items of a request as the model gets them."""
        return items

    def growing_requests(self, incoming: Incoming) -> GrowingRequests | None:
        """The earlier requests of a client that sends its whole conversation with each."""
        return None

    def model_route(self, incoming: Incoming) -> Handler | None:
        """The handler of a model's route whose path holds a name; None for any other path."""
        if incoming.method == "POST" and (match := _GEMINI.fullmatch(incoming.path)):
            return {"countTokens": self._count}.get(match[2], self._answer) if match[2] in _GEMINI_ACTIONS else None
        if incoming.method == "GET" and (match := _ONE_MODEL.fullmatch(incoming.path)):
            return self._describe
        if incoming.method == "GET" and _STORED.fullmatch(incoming.path):
            return self._stored
        return None

    def _other(self, incoming: Incoming) -> Handler:
        return self.model_route(incoming) or super()._other(incoming)

    def error_reply(self, incoming: Incoming, status: int, content: Body, headers: Headers) -> Reply:
        """An error in the dialect of the client. `stage` and `kind` stand beside it, for clients of ours."""
        dialect = dialect_of(incoming)
        if dialect is None:
            return super().error_reply(incoming, status, content, headers)
        kind, detail = content.get("kind"), content["detail"]
        refused = _UPSTREAM.fullmatch(str(kind))
        if refused is not None and refused[1] not in _NOT_PASSED_ON:
            status = int(refused[1])
        param = ".".join(map(str, detail[0]["loc"][1:])) or None if isinstance(detail, list) and detail else None
        body = error_body(dialect, status, detail_text(detail), kind=content.get("code", kind), param=param)
        ours = {key: content[key] for key in ("stage", "kind") if content.get(key) is not None}
        return Reply(encode({**body, **ours}), status, headers=headers)

    async def _read(self, incoming: Incoming) -> Body:
        await decode_body(incoming, self.guard.body_bytes)
        return incoming.json()

    async def _answer(self, incoming: Incoming) -> Reply:
        await decode_body(incoming, self.guard.body_bytes)
        dialect = _spoken(incoming)
        body, request = self._read_request(incoming, dialect)
        response = await self.respond_to(incoming, request)
        if dialect != "gemini":
            return self._WRITE[dialect](body, response)
        streams = incoming.path.endswith(":streamGenerateContent")
        as_events = b"alt=sse" in (incoming.scope.get("query_string") or b"").split(b"&")
        return gemini_reply(response, streams=streams, as_events=as_events)

    def _read_request(self, incoming: Incoming, dialect: Dialect) -> tuple[Body, Body]:
        """The fields of a request, perhaps without its messages, and the Responses request that it is."""

        def convert(body: Body) -> Body:
            if dialect != "responses" or not self.passes_tools_on:
                carried, tools = split_tools(dialect, body)
                if tools:
                    self.cannot_carry(incoming, tools)
                    body = carried
            return self._READ[dialect](body)

        growing = self.growing_requests(incoming)
        if (
            growing is not None
            and (asked := growing.read(dialect, incoming.body, convert, self.read_items)) is not None
        ):
            return asked
        body = incoming.json()
        request = convert(body)
        items = request.get("input")
        return body, {**request, "input": self.read_items(items)} if isinstance(items, list) else request

    async def _count(self, incoming: Incoming) -> Reply:
        body = await self._read(incoming)
        dialect = _spoken(incoming)
        inner = body.get("generateContentRequest") if dialect == "gemini" else None
        request = self._READ[dialect](inner if isinstance(inner, dict) else body)
        tokens = await count_tokens(self.model_for(incoming), request)
        if dialect == "gemini":
            return Reply.of({"totalTokens": tokens})
        kind = {"object": "response.input_tokens"} if dialect == "responses" else {}
        return Reply.of({**kind, "input_tokens": tokens})

    async def _list(self, incoming: Incoming) -> Reply:
        return Reply.of(model_list(_spoken(incoming), self.model_name))

    async def _describe(self, incoming: Incoming) -> Reply:
        match = _ONE_MODEL.fullmatch(incoming.path)
        assert match is not None
        return Reply.of(model_entry(_spoken(incoming), match[1]))

    async def _stored(self, incoming: Incoming) -> Reply:
        response_id = incoming.path.rpartition("/")[2]
        response = self.stored_response(incoming, response_id)
        if response is None:
            raise Refusal(404, f"no response {response_id} is stored here")
        return Reply(encode(response))


def _spoken(incoming: Incoming) -> Dialect:
    dialect = dialect_of(incoming)
    assert dialect is not None
    return dialect
