"""vLLM: token ids both ways.

| way | what is rendered | what generates | what parses |
| --- | --- | --- | --- |
| `generate` | `/v1/chat/completions/render` | `/inference/v1/generate` | `/v1/chat/completions/derender` |
| `completions` | `/tokenize` | `/v1/completions` | this process: `<think>` and `<tool_call>` tags |

The second way is for servers that lack the routes of the first. The first call of a rollout is a chat request with
`return_token_ids` either way.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, ClassVar, Literal

from ludus.errors import Failure
from ludus.http.connection import HttpReply
from ludus.model import Request
from ludus.models import chatml
from ludus.models.history import NewSequence
from ludus.models.server_stops import Route
from ludus.models.token_response import token_response
from ludus.models.token_server import RENDERED, NoRouteError, TokenServerModel, count_media, cut_at_stop, id_list
from ludus.models.transformers_prompt import items_of
from ludus.models.vllm_media import features_of
from ludus.response import Response
from ludus.token_fields import tokens_from_chat
from ludus.tokens import Tokens, sampling_record

#: What happens where vLLM's own parsers cannot be asked.
_INSTEAD = "reads calls only as <tool_call> tags. Start vLLM with --enable-scale-out: then its own parsers read them"
#: Fields of a rendering that `generate` takes as they are.
_KEPT = ("model", "priority", "cache_salt", "reasoning_ended", "reasoning_parser_kwargs")
#: Fields of a chat request that a completion does not have.
_CHAT_ONLY = frozenset(
    {"messages", "tools", "tool_choice", "parallel_tool_calls", "chat_template_kwargs", "logprobs", "top_logprobs"}
    | {"max_completion_tokens", "stream", "stream_options", "reasoning_effort", "response_format"}
)


class VllmModel(TokenServerModel):
    """`vllm:URL#NAME`."""

    class Config(TokenServerModel.Config):
        """`history` is how the ids of a rollout are sent: by the best way that the server has, by one of them, or not
        at all (`chat`). `prefix` is for chat servers that take ids beside the messages: `field` sends the ids so far as
        `required_prefix_token_ids`, `message` puts them on the last turn.
        """

        history: Literal["auto", "generate", "completions", "chat"] = "auto"
        prefix: Literal["off", "field", "message"] = "off"

    config: Config

    asks_for_tokens: ClassVar[dict[str, Any]] = {
        "logprobs": True,
        "top_logprobs": 0,
        "return_tokens_as_token_ids": True,
        "return_token_ids": True,
    }
    ways: ClassVar[tuple[str, ...]] = ("generate", "completions")
    media_ways: ClassVar[tuple[str, ...]] = ("generate",)
    opened_by: ClassVar[str] = ", or start vLLM with --enable-scale-out"
    stop_routes: ClassVar[dict[str, Route]] = {"pause": ("/pause?mode=keep", {}), "drain": ("/pause?mode=wait", {})}
    stop_hint: ClassVar[str] = "Start vLLM with VLLM_SERVER_DEV_MODE=1, which adds the routes for training"

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._encodes_messages = config.prefix != "message"  # which adds to a message
        if config.prefix != "off" or config.history == "chat":
            self._ways = []
        elif config.history != "auto":
            self._ways = [config.history]
        self._end_texts: dict[int, str] = {}
        self._advice = ""

    def stats(self) -> dict[str, Any]:
        """What the base counts, and advice on how to start the server."""
        return {**super().stats(), **({"advice": self._advice} if self._advice else {})}

    def _no_route(self, reply: HttpReply) -> bool:
        """Also whether the server keeps a route closed: since 0.30 those for ids need a flag."""
        if reply.status == 403 and b"--enable-scale-out" in reply.body:
            if self.config.history == "auto":
                self._advice = f"{self.name} does without some routes for ids, and Ludus {_INSTEAD}"
            return True
        return super()._no_route(reply)

    def _chat_body(self, request: Request) -> dict[str, Any]:
        body = super()._chat_body(request)
        if request.tokens is not None:
            self._send_prefix(body, request.tokens)
        return body

    def _send_prefix(self, body: dict[str, Any], tokens: Tokens) -> None:
        if self.config.prefix == "field":
            body["required_prefix_token_ids"] = [*tokens.prompt_ids, *tokens.generated_ids]
        elif self.config.prefix == "message":
            for message in reversed(body["messages"]):
                if message["role"] == "assistant":
                    message["prompt_token_ids"] = list(tokens.prompt_ids)
                    message["generation_token_ids"] = tokens.generated_ids
                    message["generation_log_probs"] = tokens.logprobs
                    return

    def _from_chat(self, data: Any) -> Response:
        choice = _choice(data)
        response = super()._from_chat(data)
        if response.tokens is not None:
            self._learn_end(response.tokens, choice.get("finish_reason"), choice.get("stop_reason"))
        return response

    async def _anew(self, request: Request) -> Response:
        """Send a conversation with images as ids from the start, so that later turns know what the images became."""
        if "generate" in self._ways and count_media(request.input):
            rendered: list[dict[str, Any]] = []
            try:
                ids = await self._rendered("generate", rendered, request)
                rendered[0]["media"] = features_of(None, rendered[0], len(ids))
            except (NoRouteError, NewSequence, Failure):
                return await super()._anew(request)  # the chat route says what is wrong, if anything is
            with suppress(NoRouteError):
                return await self._answer("generate", request, ids, rendered[0])
        return await super()._anew(request)

    def _place_media(self, request: Request, images: int, ids: list[int], rendered: dict[str, Any]) -> None:
        assert request.tokens is not None
        rendered["media"] = features_of(request.tokens.media, rendered, len(ids))
        if sum(map(len, rendered["media"]["mm_hashes"].values())) != images:
            raise NewSequence("what the server made of earlier images is not known")

    async def _rendered(self, way: str, rendered: list[dict[str, Any]], asked: Request) -> list[int]:
        body = self._chat_body(asked)
        if way == "generate":
            data = await self._json("/chat/completions/render", asked, body)
            rendered.append({**data, "chat": body})
            return id_list(data.get("token_ids"), "the ids of a rendering")
        if chatml.forced_tools(asked.params):
            raise NewSequence("a call is forced, which only the chat route can do")
        data = await self._json("/tokenize", asked, {key: body[key] for key in RENDERED if key in body})
        rendered.append({"chat": body})
        return id_list(data.get("tokens"), "the ids of a rendering")

    async def _answer(self, way: str, request: Request, ids: list[int], rendered: dict[str, Any]) -> Response:
        body = rendered["chat"]
        sent = self._generate_body(ids, rendered) if way == "generate" else self._completion_body(ids, body)
        path = "/inference/v1/generate" if way == "generate" else "/completions"
        reply = await self._ask(path, request, sent, generates=True)
        if reply.status != 200:
            return self._refused(reply, body)
        data = self._object_of(reply, path)
        choice = _choice(data)
        if not choice:
            raise Failure("bad_response", f"{self.name} sent no choice: {self._message(reply)}")
        tokens = _tokens(way, data, ids)
        tokens.media = rendered.get("media")
        matched = choice["stop_reason"] if "stop_reason" in choice else "unknown" if body.get("stop") else None
        self._learn_end(tokens, choice.get("finish_reason"), matched)
        tokens.policy_version = self.config.policy_version
        tokens.sampling = sampling_record(body.get("temperature"), body.get("top_p"), self.config.logprobs)
        if way == "generate":
            response = await self._derendered(request, data, tokens, body)
        else:
            response = self._parsed(request, choice, tokens)
        response.waited = reply.connect_seconds
        return response

    def _generate_body(self, ids: list[int], rendered: dict[str, Any]) -> dict[str, Any]:
        sampling = dict(rendered.get("sampling_params") or {})
        if not {"max_tokens", "max_completion_tokens"} & rendered["chat"].keys():
            sampling.pop("max_tokens", None)  # it is what the short conversation leaves: the server computes it anew
        kept = {key: rendered[key] for key in _KEPT if rendered.get(key) is not None}
        if rendered.get("media"):
            kept["features"] = rendered["media"]
        return {**kept, "token_ids": ids, "sampling_params": sampling}

    def _completion_body(self, ids: list[int], body: dict[str, Any]) -> dict[str, Any]:
        sent = {key: value for key, value in body.items() if key not in _CHAT_ONLY}
        if "max_tokens" not in sent:
            limit = body.get("max_completion_tokens")
            sent |= {"max_tokens": limit} if limit is not None else {}
        return {**sent, "prompt": ids, "logprobs": 0, "skip_special_tokens": False}

    async def _derendered(
        self, request: Request, data: dict[str, Any], tokens: Tokens, body: dict[str, Any]
    ) -> Response:
        """The answer as the server's own parsers read it; as plain text where they refuse it."""
        ids, choice = tokens.generated_ids, _choice(data)
        if ids and ids[-1] in self._continuation.ends and ids[-1] not in self._end_texts:
            self._end_texts[ids[-1]] = await self._text(request, ids[-1:])
        chat: dict[str, Any] = {}
        if ids:
            bare = {**data, "choices": [{"index": 0, "finish_reason": choice.get("finish_reason"), "token_ids": ids}]}
            bare.pop("prompt_logprobs", None)
            asked = {"generate_response": bare, "chat_request": body, "prompt_tokens": len(tokens.prompt_ids)}
            try:
                chat = await self._json("/chat/completions/derender", request, {"model": self.config.model, **asked})
            except Failure as error:
                if error.kind != "bad_request":
                    raise
        if not chat:
            text = await self._text(request, ids) if ids else ""
            chat = {"choices": [{"index": 0, "message": {"role": "assistant", "content": text}}]}
            chat["choices"][0]["finish_reason"] = choice.get("finish_reason")
        end = self._end_texts.get(ids[-1], "") if ids else ""
        cut_at_stop(_choice(chat).get("message"), body.get("stop"), end)
        if said := _choice(chat):
            said.pop("token_ids", None)  # they are recorded from the other reply
            chat["choices"] = [said]
        known = {"id": data.get("request_id"), "created": data.get("created"), "model": data.get("model")}
        response = super()._from_chat({**chat, **known, "usage": data.get("usage")})
        response.tokens = tokens
        return response

    def _parsed(self, request: Request, choice: dict[str, Any], tokens: Tokens) -> Response:
        cut = choice.get("finish_reason") == "length"
        items = items_of(str(choice.get("text") or ""), "", key=f"{request.session}:{len(request.input)}")
        if cut:
            items[-1]["status"] = "incomplete"
        return token_response(self.config.model, tokens, items, cut=cut, context=2**31)


def _tokens(way: str, data: dict[str, Any], ids: list[int]) -> Tokens:
    """The tokens of an answer to `ids`. A server that says it read other ids than those is not believed."""
    choice = _choice(data)
    chat = {**choice, "message": {}}
    if way == "completions":
        logprobs = choice.get("logprobs") or {}
        entries = zip(choice.get("token_ids") or (), logprobs.get("token_logprobs") or (), strict=False)
        chat["logprobs"] = {"content": [{"id": id, "logprob": logprob} for id, logprob in entries]}
    usage = data.get("usage") if isinstance(data.get("usage"), dict) else {}
    if (read := (usage or {}).get("prompt_tokens", len(ids))) != len(ids):
        raise Failure("bad_response", f"{len(ids)} ids were sent, and the server read {read}")
    tokens = tokens_from_chat({"choices": [chat], "usage": usage}, choice.get("prompt_token_ids") or ids)
    if tokens is None or list(tokens.prompt_ids) != ids:
        raise Failure(
            "bad_response", "the server did not return the ids of its answer, or read different ids than were sent"
        )
    return tokens


def _choice(data: Any) -> dict[str, Any]:
    choices = data.get("choices") if isinstance(data, dict) else None
    return dict(choices[0]) if isinstance(choices, list) and choices and isinstance(choices[0], dict) else {}
