"""A server that returns token ids: Chat Completions for the first call of a rollout, ids for all later ones.

The first call asks the chat route, which returns the ids of its prompt and of its answer. Each later call sends the ids
so far, followed by what was added (`history`), on the route that the server has for ids. Only a conversation that
cannot be continued is rendered as a whole again: the record says why.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, ClassVar, Literal

import orjson

from ludus.dialects.chat_tools import without_strict
from ludus.errors import Failure
from ludus.http.connection import HttpReply
from ludus.model import Request
from ludus.models.history import Continuation, EarlierReasoning, NewSequence, keep_history, render_async, take_prefill
from ludus.models.openai import OpenAIModel
from ludus.models.server_stops import Route, ServerStops
from ludus.models.transport import Transport
from ludus.response import Item, Response
from ludus.runtime.encoding import compact
from ludus.tokens import Tokens, common_prefix, id_array

#: How many broken sequences of a run are explained with the texts that changed.
_EXPLAINED = 64
_SHOWN_IDS = 12
_PREFILL = {"continue_final_message": True, "add_generation_prompt": False}
#: The fields of a chat request that every server's `/tokenize` takes.
RENDERED = ("model", "messages", "tools", "chat_template_kwargs", *_PREFILL)
_MEDIA = ("input_image", "input_audio", "input_file", "input_video", "image_url")


class NoRouteError(Exception):
    """The server has no such route."""


class TokenServerModel(OpenAIModel):
    """Base of the models on servers that return token ids.

    The `metadata` of a row may hold `extra_body` and `chat_template_kwargs` for its request, as JSON text.
    """

    class Config(OpenAIModel.Config):
        """`earlier_reasoning` says what happens where the template drops reasoning: its ids are kept, or a new sequence
        begins."""

        api: Literal["auto", "responses", "chat"] = "chat"
        #: how the ids of a rollout are sent, for servers with several ways
        history: str = "auto"
        #: arguments of the chat template, such as `{enable_thinking: false}` or `{continue_final_message: true}`
        chat_template_kwargs: dict[str, Any] = {}
        earlier_reasoning: EarlierReasoning = "keep"
        #: send `strict` of tools with `--tokens`, too: servers then sample calls under a grammar, not as the policy
        strict_tools: bool = False

    config: Config

    #: What a chat request says to get ids.
    asks_for_tokens: ClassVar[dict[str, Any]] = {"logprobs": True}
    #: The ways to send ids, best first. `chat` is none of them: it is what is left.
    ways: ClassVar[tuple[str, ...]] = ()
    #: Those that can send images, too.
    media_ways: ClassVar[tuple[str, ...]] = ()
    #: What else helps where the server lacks a way.
    opened_by: ClassVar[str] = ""
    #: The routes that stop generation: `pause` freezes requests, `drain` finishes them. Then that to go on, and a hint.
    stop_routes: ClassVar[dict[str, Route]] = {}
    resume_route: ClassVar[Route] = ("/resume", {})
    stop_hint: ClassVar[str] = ""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        urls, headers = self._urls(), self._transport.headers
        self._transport = _ServerTransport(self.name, urls, headers, config.retries, self._http_options())
        self._stops = ServerStops(self._transport, self.stop_routes, self.resume_route, self.stop_hint)
        self._continuation = Continuation(earlier_reasoning=config.earlier_reasoning, learns=True)
        self._ways = list(self.ways)
        self._explained = 0

    def servers_stopped(self, how: str) -> AbstractAsyncContextManager[None]:
        """Stop all servers at once, to change their weights: `pause` freezes what they generate, `drain` waits for it.

        async with model.servers_stopped("drain"):
            update_weights()
        """
        return self._stops.stopped(how)

    def stats(self) -> dict[str, Any]:
        """What `OpenAIModel` counts, and the last stops of the servers."""
        stops = self._stops.stats()
        return {**super().stats(), **({"stops": stops} if stops else {})}

    async def respond(self, request: Request) -> Response:
        """Answer one request: with the ids of the rollout so far if there are any."""
        if not self.capture_tokens:
            return await super().respond(request)
        why = "no ids were sent, and the server rendered the conversation anew"
        while self._ways and request.tokens is not None:
            way = self._ways[0]
            try:
                response = await self._by_ids(way, request)
            except NewSequence as error:
                why = str(error)
                break
            except NoRouteError:
                if self.config.history == way:
                    cause = f"{self.name} has no route for history={way}: set history to auto{self.opened_by}"
                    raise Failure("unsupported", cause) from None
                if way in self._ways:
                    self._ways.remove(way)
                continue
            return keep_history(request, response)
        response = await self._anew(request)
        if response.tokens is not None:
            response.tokens.broke = await self._explained_break(request, response.tokens, why)
        return keep_history(request, response)

    async def _anew(self, request: Request) -> Response:
        """Answer a conversation that the server renders as a whole."""
        return await super().respond(request)

    async def _by_ids(self, way: str, request: Request) -> Response:
        images = count_media(request.input)
        if images and way not in self.media_ways:
            raise NewSequence("the conversation holds images, which the server must render")
        rendered: list[dict[str, Any]] = []
        ids = await render_async(self._continuation.ids(request), partial(self._rendered, way, rendered))
        if not rendered:  # the answer goes on where it was cut off
            await self._rendered(way, rendered, Request("?", request.session, params=request.params))
        last = rendered[-1]
        if request.params.get("tools"):  # the rendering may have been made with a short tool
            whole = self._chat_body(Request("?", params=request.params))
            last["chat"] = {**last["chat"], "tools": whole.get("tools")}
        if images:
            self._place_media(request, images, ids, last)
        return await self._answer(way, request, ids, last)

    async def _rendered(self, way: str, rendered: list[dict[str, Any]], asked: Request) -> list[int]:
        """The ids of a request. Appends what was learned about it to `rendered`: its chat body among others."""
        raise NotImplementedError

    def _place_media(self, request: Request, images: int, ids: list[int], rendered: dict[str, Any]) -> None:
        """Note in `rendered` where the images are in `ids`."""
        raise NotImplementedError

    async def _answer(self, way: str, request: Request, ids: list[int], rendered: dict[str, Any]) -> Response:
        """Answer a prompt of ids."""
        raise NotImplementedError

    def _chat_params(self, request: Request) -> dict[str, Any]:
        params = super()._chat_params(request)
        if self.capture_tokens and not self.config.strict_tools and "tools" in params:
            params["tools"] = without_strict(params["tools"])
        return params

    def _chat_body(self, request: Request) -> dict[str, Any]:
        metadata = request.params.get("metadata") or {}
        body = {**super()._chat_body(request), **_object(metadata, "extra_body")}
        body.pop("metadata", None)
        asked = body.pop("chat_template_kwargs", None) or {}
        template = {**self.config.chat_template_kwargs, **asked, **_object(metadata, "chat_template_kwargs")}
        if take_prefill(request, template):
            body |= _PREFILL
        if template:
            body["chat_template_kwargs"] = template
        if self.capture_tokens:
            body |= self.asks_for_tokens
        return body

    async def _ask(self, path: str, request: Request, body: dict[str, Any], *, generates: bool = False) -> HttpReply:
        """Post to a route that may be missing, which raises `NoRouteError`. What it refuses is a `bad_request`."""
        reply: HttpReply = await self._transport.post(
            path,
            compact(orjson.dumps(body)),
            session=request.session,
            deadline=request.deadline,
            observer=self.observer if generates else None,
            headers=self._call_headers(request),
        )
        if self._no_route(reply):
            raise NoRouteError(path)
        if not generates and reply.status in (400, 422):
            raise Failure("bad_request", self._message(reply))
        return reply

    async def _json(self, path: str, request: Request, body: dict[str, Any]) -> dict[str, Any]:
        """The answer of a route that generates nothing."""
        reply = await self._ask(path, request, body)
        if reply.status != 200:
            raise Failure(
                f"http_{reply.status}", f"{self.name} answered {reply.status} to {path}: {self._message(reply)}"
            )
        return self._object_of(reply, path)

    def _object_of(self, reply: HttpReply, path: str) -> dict[str, Any]:
        try:
            data = orjson.loads(reply.body)
        except orjson.JSONDecodeError:
            data = None
        if not isinstance(data, dict):
            raise Failure("bad_response", f"{self.name} did not send an object on {path}: {self._message(reply)}")
        return data

    def _learn_end(self, tokens: Tokens, finish: Any, matched: Any) -> None:
        """An answer that no limit and no stop string ended has an end id at its end."""
        if finish in ("stop", "tool_calls") and not isinstance(matched, str) and tokens.generated_ids:
            self._continuation.ends.add(tokens.generated_ids[-1])

    async def _explained_break(self, request: Request, tokens: Tokens, why: str) -> str:
        """Why a prompt does not continue the previous call, with the texts that changed."""
        if request.tokens is None or self._explained >= _EXPLAINED:
            return why
        past = id_array(request.tokens.prompt_ids) + id_array(request.tokens.generated_ids)
        now = id_array(tokens.prompt_ids)
        at = common_prefix(past, now)
        if at == len(past):
            return why
        self._explained += 1
        try:
            was = await self._text(request, past[at : at + _SHOWN_IDS].tolist())
            became = await self._text(request, now[at : at + _SHOWN_IDS].tolist())
        except (Failure, NoRouteError):
            return why
        return f"{why}: {was!r} became {became!r}"

    async def _text(self, request: Request, ids: list[int]) -> str:
        body = {"model": self.config.model, "tokens": ids, "skip_special_tokens": False}
        data = await self._json("/detokenize", request, body)
        return str(data.get("prompt", data.get("text", "")))


class _ServerTransport(Transport):
    """Knows which routes are not below `/v1`."""

    def address(self, base: str, path: str) -> str:
        if path.startswith(("/inference/", "/tokenize", "/detokenize")):
            address, mark, query = base.partition("?")
            base = address.rstrip("/").removesuffix("/v1") + mark + query
        return super().address(base, path)


def id_list(value: Any, what: str) -> list[int]:
    """A list of ids from a server."""
    if not isinstance(value, list) or not all(type(id) is int and id >= 0 for id in value):
        raise Failure("bad_response", f"{what} are not a list of ids: {str(value)[:100]}")
    return value


def cut_at_stop(message: Any, stop: Any, end: str = "") -> None:
    """Shorten the text of a chat message: without its end token, and to before the first stop string."""
    if isinstance(message, dict) and isinstance(text := message.get("content"), str):
        text = text.removesuffix(end)
        for ending in [stop] if isinstance(stop, str) else stop or ():
            text = text.partition(ending)[0] if ending else text
        message["content"] = text


def count_media(items: Iterable[Item]) -> int:
    """How many images and other media a conversation holds."""
    parts = (item.get("content") if "content" in item else item.get("output") for item in items)
    return sum(
        isinstance(part, dict) and part.get("type") in _MEDIA
        for each in parts
        if isinstance(each, list)
        for part in each
    )


def _object(metadata: dict[str, Any], key: str) -> dict[str, Any]:
    """A JSON object in the metadata of a row. It is JSON text there, because metadata values must be texts."""
    value = metadata.get(key)
    if value is None:
        return {}
    try:
        parsed = orjson.loads(value) if isinstance(value, str) else value
    except orjson.JSONDecodeError as error:
        raise Failure("bad_request", f"metadata.{key} is not JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise Failure("bad_request", f"metadata.{key} is not an object: {str(value)[:100]}")
    return parsed
