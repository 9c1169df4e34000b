"""A model behind one or several endpoints of the Responses API or of Chat Completions.

The key comes from the environment or `env.yaml` and is sent in the request's header only. A prompt that is too long for
the model is an incomplete response, as if the model had reached its token limit, and not a failure.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Awaitable
from dataclasses import replace
from typing import Any, Literal
from urllib.parse import parse_qsl, quote, urlsplit

import orjson
from pydantic import Field, FiniteFloat, PositiveInt, field_validator

from ludus.dialects.chat import OPEN, OPENAI, from_chat, to_chat
from ludus.dialects.chat_stream import ChatStream
from ludus.dialects.responses_stream import ResponsesStream
from ludus.dialects.sse import EventParser, values
from ludus.errors import Failure, UserError
from ludus.http.connection import REPLY_BYTES, HttpReply
from ludus.http.retries import Retries
from ludus.model import Model, ModelConfig, Request, ServerLoad
from ludus.models.chat_history import chat_body
from ludus.models.transport import HttpOptions, Transport
from ludus.response import ANSWERED, Response, prompt_too_long
from ludus.runtime.encoding import compact
from ludus.runtime.keys import SHORTEST_KEY, header_value, look_up_key, redacted, without_keys, without_partial_key
from ludus.runtime.urls import shown_url
from ludus.token_fields import tokens_from_chat, tokens_from_response
from ludus.tokens import sampling_record

#: A conversation of this many items is encoded for later turns from its first call on: most shorter ones have no other.
_LONG = 8
DEFAULT_URL = "https://api.openai.com/v1"
_INDEX = re.compile(r"\[\d+\]")
_VERSION = re.compile(r"/v\d")
_TOO_LONG = (
    "context length",
    "context_length",
    "context size",
    "context_size",
    "maximum context",
    "context window",
    "prompt is too long",
    "max_model_len",
    "exceeds the maximum allowed length",
)
#: How large the context is, in such a message.
_CONTEXT = re.compile(r"(?:max_model_len|(?:context|model) (?:length|window|size))\D{1,20}(\d[\d,]{0,11})", re.I)
_LIMITS = ("max_output_tokens", "max_completion_tokens", "max_tokens")
#: LM Studio answers an unknown route with status 200 and this text.
_UNKNOWN_ROUTE = b'"Unexpected endpoint or method'

#: How a web page begins.
_HTML = re.compile(rb"\s*<(!doctype html|html|head|body)\b", re.IGNORECASE)


class OpenAIModel(Model):
    """A model behind HTTP. `api: auto` tries Responses first and falls back to Chat if that route is unknown."""

    class Config(ModelConfig):
        """Settings of an endpoint. Sampling settings are defaults for requests without them.

        `reasoning` is where the endpoint puts reasoning in Chat. `stream` requests a streamed answer, for proxies that
        close idle connections. `http` is the HTTP client: our own, or aiohttp. `max_reply_bytes` limits an answer after
        decompression, `max_connections` the connections to each endpoint. `logprobs` says what the endpoint sends: log
        probabilities of the distribution that was `sampled` from, or of the `model` before temperature and top_p.
        """

        #: the name of the model on the server
        model: str
        #: the URL of the endpoint, or several that share the load
        base_url: str | list[str] | None = None
        #: which API to speak; `auto` tries Responses first
        api: Literal["auto", "responses", "chat"] = "auto"
        #: the environment variable that holds the key
        api_key_env: str = "OPENAI_API_KEY"
        #: how often a call is tried again; a number counts for all kinds of errors
        retries: Retries = Retries()
        #: for requests without their own
        temperature: FiniteFloat | None = None
        #: for requests without their own
        top_p: FiniteFloat | None = None
        #: for requests without their own
        max_output_tokens: int | None = None
        #: fields that are added to every request
        extra_body: dict[str, Any] = {}
        #: headers that are added to every request
        headers: dict[str, str] = {}
        reasoning: Literal["reasoning_content", "reasoning", "reasoning_details", "think", "none"] | None = None
        stream: bool = False
        http: Literal["lean", "aiohttp"] = "lean"
        max_reply_bytes: PositiveInt = REPLY_BYTES
        max_connections: PositiveInt | None = None
        #: the version of the weights, for the record
        policy_version: str | None = Field(default=None, coerce_numbers_to_str=True)
        logprobs: Literal["sampled", "model"] | None = None

        @field_validator("retries", mode="before")
        @classmethod
        def _same_for_all(cls, value: Any) -> Any:
            return {"busy": value, "server": value, "dropped": value} if isinstance(value, int) else value

    connects = True
    _encodes_messages = True  # messages of earlier turns are sent as they were encoded then

    def __init__(self, config: Config) -> None:
        self.config = config
        urls = self._urls()
        self.name = f"{shown_url(urls[0])}#{config.model}" if urls[0] != DEFAULT_URL else f"openai:{config.model}"
        self._key = header_value(look_up_key(config.api_key_env), f"the key in {config.api_key_env}")
        for header, value in config.headers.items():
            header_value(header + value, f"the header {header!r}")
        if urls[0] == DEFAULT_URL and not self._key:
            raise UserError(f"model openai:{config.model} needs a key", f"Set {config.api_key_env}")
        self._chat = config.api == "chat"
        self.takes_client_tools = config.api == "responses" or (urls[0] == DEFAULT_URL and not self._chat)
        defaults = config.model_dump(include={"temperature", "top_p", "max_output_tokens"}, exclude_none=True)
        self._fixed = {"model": config.model, **defaults}
        headers = {**config.headers, **self._authorisation()}
        self._style = OPENAI if urls[0] == DEFAULT_URL else OPEN
        if config.reasoning is not None:
            self._style = replace(self._style, reasoning=config.reasoning)
        self._lost: Counter[str] = Counter()
        self._transport = Transport(self.name, urls, headers, config.retries, self._http_options())
        query_values = [value for url in urls for _, value in parse_qsl(urlsplit(url).query)]
        sent = [*config.headers.values(), *query_values, *map(quote, query_values)]  # an error may quote these
        self._sent = [value for value in sent if len(value) >= SHORTEST_KEY]

    async def stop(self) -> None:
        """Close the connections."""
        await self._transport.stop()

    def forget(self, session: str) -> None:
        """Forget the endpoint of a finished rollout."""
        self._transport.pool.forget(session)

    def stats(self) -> dict[str, Any]:
        """Endpoints, retries, time spent connecting, and fields that Chat could not hold."""
        return {**self._transport.stats(), "lost": dict(self._lost.most_common(50))}

    async def server_loads(self) -> list[ServerLoad | None]:
        """What each endpoint says about its load. OpenAI's own is not asked."""
        return [] if self._urls()[0] == DEFAULT_URL else await self._transport.server_loads()

    async def respond(self, request: Request) -> Response:
        """Answer one request."""
        if not self._chat:
            body = self._responses_body(request)
            reply = await self._post("/responses", request, body)
            if self.config.api != "auto" or not self._no_route(reply):
                return self._read(reply, body, _from_responses, ResponsesStream)
            self._chat = True
        body = self._chat_body(request)
        reply = await self._post("/chat/completions", request, body)
        return self._read(reply, body, self._from_chat, ChatStream)

    def _urls(self) -> list[str]:
        urls = self.config.base_url or look_up_key("OPENAI_BASE_URL") or DEFAULT_URL
        return [urls] if isinstance(urls, str) else list(urls)

    def _http_options(self) -> HttpOptions:
        return HttpOptions(self.config.http, self.config.max_reply_bytes, self.config.max_connections)

    def _authorisation(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._key}"} if self._key else {}

    def _responses_body(self, request: Request) -> dict[str, Any]:
        params = request.params
        if None in params.values():  # null means unset, so our settings apply
            params = {key: value for key, value in params.items() if value is not None or key not in self._fixed}
        return {**self._fixed, **params, **self.config.extra_body, "input": request.input.encoded()}

    def _chat_body(self, request: Request) -> dict[str, Any]:
        lost: list[str] = []
        params = self._chat_params(request)
        if self._encodes_messages and (request.turn or len(request.input) >= _LONG):
            body = chat_body(request.input, params, self._style, lost)
        else:
            body = to_chat(request.input, params, style=self._style, lost=lost)
        self._count_lost(lost)
        return {**body, **self.config.extra_body}

    def _chat_params(self, request: Request) -> dict[str, Any]:
        return {**self._fixed, **{key: value for key, value in request.params.items() if value is not None}}

    def _from_chat(self, data: Any) -> Response:
        tokens, lost = tokens_from_chat(data), list[str]()
        response = Response.checked(from_chat(data, style=self._style, lost=lost), tokens)
        self._count_lost(lost)
        return response

    def _count_lost(self, lost: list[str]) -> None:
        """Count what a conversion lost, by field and not by index."""
        for entry in lost:
            self._lost[_INDEX.sub("[]", entry)] += 1

    def _post(self, path: str, request: Request, body: dict[str, Any]) -> Awaitable[HttpReply]:
        if self.config.stream:
            body["stream"] = True
        return self._transport.post(
            path,
            compact(orjson.dumps(body)),
            session=request.session,
            deadline=request.deadline,
            repeatable=not (request.params.get("background") or request.params.get("conversation")),
            observer=self.observer,
            headers=self._call_headers(request),
        )

    def _call_headers(self, request: Request) -> dict[str, str] | None:
        """Headers of one call, beside those of every call."""
        return None

    def _read(
        self, reply: HttpReply, body: dict[str, Any], convert: Any, joiner: type[ChatStream] | type[ResponsesStream]
    ) -> Response:
        if reply.status != 200:
            return self._refused(reply, body)
        try:
            data = _joined_stream(reply.body, joiner()) if self.config.stream else orjson.loads(reply.body)
            response: Response = convert(data)
        except orjson.JSONDecodeError as error:
            cause = f"{self.name} did not send JSON: {self._message(reply)}"
            raise Failure("bad_response", cause) from error
        except Failure as error:  # its cause may quote a truncated key
            raise Failure(error.kind, self._clean(without_partial_key(error.cause, self._key))) from None
        data = response.data
        status = data.get("status") or "completed"
        if status not in ANSWERED or (not response.output and data.get("error")):
            fault = data.get("error")
            cause = f": {self._clean(str(fault))[:300]}" if fault else ""
            raise Failure("bad_response", f"{self.name} sent no answer: its status is {status!s:.60}{cause}")
        if (tokens := response.tokens) is not None:
            tokens.policy_version = tokens.policy_version or self.config.policy_version
            tokens.sampling = sampling_record(body.get("temperature"), body.get("top_p"), self.config.logprobs)
        response.waited = reply.connect_seconds
        return response

    def _refused(self, reply: HttpReply, body: dict[str, Any]) -> Response:
        """An empty answer if the prompt is too long. Anything else is a failure, also a limit beyond the context."""
        message = self._message(reply)
        if reply.status in (400, 413):
            error = _error(reply.body)
            text = f"{message} {error.get('code')} {error.get('type')}" if isinstance(error, dict) else message
            if any(words in text.lower() for words in _TOO_LONG):
                limit = max((body[key] for key in _LIMITS if type(body.get(key)) is int), default=0)
                context = _CONTEXT.search(text)
                if context is None or limit < int(context[1].replace(",", "")):
                    details = prompt_too_long(message)
                    return Response.of(model=self.config.model, status="incomplete", incomplete_details=details)
                how = f"No prompt has room beside {limit:,}: lower max_output_tokens of the model or the row"
                message = f"{message.rstrip('. ')}. {how}"
        location = reply.header("location") if 300 <= reply.status < 400 else None
        if location:
            url = self._clean(shown_url(" ".join(location.split())))[:200]
            message = f"redirected to {url} {message}".rstrip()
        hint = self._version_hint() if reply.status == 404 and self._no_route(reply) else ""
        key = f" to {self._key_hint()}" if reply.status == 401 else ""
        raise Failure(f"http_{reply.status}", f"{self.name} answered {reply.status}{key}: {message}{hint}")

    def _key_hint(self) -> str:
        """Which key a request had. A key may also be among the headers of the settings."""
        name = self.config.api_key_env
        if self._key or self.config.headers:
            return f"the key in {name}" if self._key else "the headers of the settings"
        return f"a request without a key ({name} is not set)"

    def _version_hint(self) -> str:
        """What to write if a URL has no `/v1`, which most servers need."""
        for url in map(urlsplit, self._urls()):
            if not _VERSION.search(url.path):
                better = url._replace(path=f"{url.path.rstrip('/')}/v1").geturl()
                return f". The URL has no /v1: try {self._clean(shown_url(better))}"
        return ""

    def _message(self, reply: HttpReply) -> str:
        """The provider's error message, in one short line and without our key."""
        content = reply.body
        error = _error(content)
        if isinstance(error, dict):
            error = error.get("message")
        is_proxy = reply.status >= 500 and reply.status != 501  # it sends a page while the model server is down
        if error is None and not is_proxy and _HTML.match(content):
            return "a web page (HTML), so this is not a model server: check model.base_url"
        text = content[:2000].decode("utf-8", "replace") if error is None else str(error)
        return self._clean(" ".join(text.split()))[:300]

    def _clean(self, text: str) -> str:
        return without_keys(redacted(text, self._key, *self._sent))

    def _no_route(self, reply: HttpReply) -> bool:
        """Whether a reply says that the route is unknown (and not that the model is unknown)."""
        if reply.status == 200:
            return reply.body.find(_UNKNOWN_ROUTE, 0, 120) >= 0
        if reply.status not in (404, 405, 501):
            return False
        text = reply.body.decode("utf-8", "replace").lower()
        for url in map(urlsplit, self._urls()):  # a 404 page may quote the URL, which may contain "model"
            text = text.replace(url.netloc.lower(), "").replace(url.path.rstrip("/").lower(), "")
        return "model" not in text


def _from_responses(data: Any) -> Response:
    response = Response.checked(data)
    response.tokens = tokens_from_response(data)
    return response


def _joined_stream(content: bytes, stream: ChatStream | ResponsesStream) -> Any:
    """Join a streamed answer. A server that does not stream sends the answer as one JSON object."""
    if content.lstrip()[:1] == b"{":
        return orjson.loads(content)
    parser = EventParser()
    for value in values([*parser.feed(content), *parser.finish()]):
        stream.add(value)
    return stream.result()


def _error(content: bytes) -> Any:
    """The `error` field of a reply; None if it has none."""
    try:
        data = orjson.loads(content)
    except orjson.JSONDecodeError:
        return None
    return data.get("error") if isinstance(data, dict) else None
