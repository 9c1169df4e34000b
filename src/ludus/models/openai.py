"""Any endpoint that speaks the Responses API or Chat Completions, by URL, or several that serve the same model.

The key comes from the environment or `env.yaml` and goes nowhere but the request's header. A prompt that is too
long for the model is an incomplete response, as if it had hit its limit at once, and not a failure.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Awaitable
from dataclasses import replace
from typing import Any, Literal
from urllib.parse import parse_qsl, quote, urlsplit

import orjson
from pydantic import FiniteFloat, field_validator

from ludus.dialects.chat import OPEN, OPENAI, from_chat, to_chat
from ludus.dialects.chat_stream import ChatStream
from ludus.dialects.responses_stream import ResponsesStream
from ludus.dialects.sse import EventParser, values
from ludus.dialects.token_capture import TOKEN_FIELDS, tokens_from_chat, tokens_from_response
from ludus.errors import Failure, UserError
from ludus.model import Model, ModelConfig, Request
from ludus.models.retry import Retries
from ludus.models.transport import Answer, Transport
from ludus.response import Response
from ludus.runtime.encoding import compact
from ludus.runtime.keys import SHORTEST, one_line, redacted, secret, without_half, without_keys
from ludus.runtime.urls import shown_url

DEFAULT_URL = "https://api.openai.com/v1"
_PLACE = re.compile(r"\[\d+\]")
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
#: How LM Studio says, with a 200, that it does not know a route.
_UNEXPECTED = b'"Unexpected endpoint or method'
#: What an answer may say of itself; any other status says that there is none yet, or that there never will be.
_ANSWERED = ("completed", "incomplete", None, "")


class OpenAIModel(Model):
    """A model behind HTTP. `api: auto` asks for Responses first and falls back to Chat where that is not known."""

    class Config(ModelConfig):
        """Settings of an endpoint. Sampling settings apply where a request does not say.

        `reasoning` is where the endpoint keeps thoughts in Chat. `stream` has the answer sent in pieces, for proxies
        that close a connection on which nothing moves.
        """

        model: str
        base_url: str | list[str] | None = None
        api: Literal["auto", "responses", "chat"] = "auto"
        api_key_env: str = "OPENAI_API_KEY"
        retries: Retries = Retries()
        temperature: FiniteFloat | None = None
        top_p: FiniteFloat | None = None
        max_output_tokens: int | None = None
        extra_body: dict[str, Any] = {}
        headers: dict[str, str] = {}
        reasoning: Literal["reasoning_content", "reasoning", "reasoning_details", "think", "none"] | None = None
        stream: bool = False
        policy_version: str | None = None

        @field_validator("retries", mode="before")
        @classmethod
        def _one_number_for_all(cls, value: Any) -> Any:
            return {"busy": value, "server": value, "dropped": value} if isinstance(value, int) else value

    connects = True

    def __init__(self, config: Config) -> None:
        self.config = config
        urls = self._urls()
        self.name = f"{shown_url(urls[0])}#{config.model}" if urls[0] != DEFAULT_URL else f"openai:{config.model}"
        self._key = one_line(secret(config.api_key_env), f"the key in {config.api_key_env}")
        for header, value in config.headers.items():
            one_line(header + value, f"the header {header!r}")
        if urls[0] == DEFAULT_URL and not self._key:
            raise UserError(f"model openai:{config.model} needs a key", f"Set {config.api_key_env}")
        self._chat = config.api == "chat"
        defaults = config.model_dump(include={"temperature", "top_p", "max_output_tokens"}, exclude_none=True)
        self._fixed = {"model": config.model, **defaults}
        headers = {**config.headers, **self._authorisation()}
        self._style = OPENAI if urls[0] == DEFAULT_URL else OPEN
        if config.reasoning is not None:
            self._style = replace(self._style, reasoning=config.reasoning)
        self._lost: Counter[str] = Counter()
        self._transport = Transport(self.name, urls, headers, config.retries)
        asked = [value for url in urls for _, value in parse_qsl(urlsplit(url).query)]
        sent = [*config.headers.values(), *asked, *map(quote, asked)]  # which a server may quote in an error
        self._sent = [value for value in sent if len(value) >= SHORTEST]

    async def start(self) -> None:
        """Open the connections."""
        await self._transport.start()

    async def stop(self) -> None:
        """Close the connections."""
        await self._transport.stop()

    def forget(self, session: str) -> None:
        """A rollout is over: its endpoint need not be remembered."""
        self._transport.pool.forget(session)

    def stats(self) -> dict[str, Any]:
        """Endpoints, retries, waiting, and what the dialect had no place for."""
        return {**self._transport.stats(), "lost": dict(self._lost.most_common(50))}

    async def respond(self, request: Request) -> Response:
        """Answer one request through the endpoint."""
        if not self._chat:
            answer = await self._post("/responses", request, self._responses_body(request))
            if self.config.api != "auto" or not self._no_route(answer):
                return self._read(answer, _from_responses, ResponsesStream)
            self._chat = True
        answer = await self._post("/chat/completions", request, self._chat_body(request))
        return self._read(answer, self._from_chat, ChatStream)

    def _urls(self) -> list[str]:
        given = self.config.base_url or secret("OPENAI_BASE_URL") or DEFAULT_URL
        return [given] if isinstance(given, str) else list(given)

    def _authorisation(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._key}"} if self._key else {}

    def _responses_body(self, request: Request) -> dict[str, Any]:
        params = request.params
        if None in params.values():  # which says nothing, so that our settings apply
            params = {key: value for key, value in params.items() if value is not None or key not in self._fixed}
        return {**self._fixed, **params, **self.config.extra_body, "input": request.input.encoded()}

    def _chat_body(self, request: Request) -> dict[str, Any]:
        lost: list[str] = []
        body = to_chat(request, self._fixed, style=self._style, lost=lost)
        self._note(lost)
        return {**body, **self.config.extra_body}

    def _from_chat(self, data: Any) -> Response:
        tokens, lost = tokens_from_chat(data), list[str]()
        response = Response.checked(from_chat(data, style=self._style, lost=lost), tokens)
        self._note(lost)
        return response

    def _note(self, lost: list[str]) -> None:
        """Count what a conversion could not carry, by what it was and not by where."""
        for entry in lost:
            self._lost[_PLACE.sub("[]", entry)] += 1

    def _post(self, path: str, request: Request, body: dict[str, Any]) -> Awaitable[Answer]:
        if self.config.stream:
            body["stream"] = True
        return self._transport.post(
            path,
            compact(orjson.dumps(body)),
            session=request.session,
            deadline=request.deadline,
            repeatable=not (request.params.get("background") or request.params.get("conversation")),
            observer=self.observer,
        )

    def _read(self, answer: Answer, convert: Any, gather: type[ChatStream] | type[ResponsesStream]) -> Response:
        if answer.status != 200:
            return self._refused(answer)
        try:
            data = _gathered(answer.content, gather()) if self.config.stream else orjson.loads(answer.content)
            response: Response = convert(data)
        except orjson.JSONDecodeError as error:
            raise Failure("bad_response", f"{self.name} sent no JSON: {self._message(answer.content)}") from error
        except Failure as error:  # which quotes what was sent, cut short
            raise Failure(error.kind, self._clean(without_half(error.cause, self._key))) from None
        status = response.data.get("status")
        if status not in _ANSWERED or (not response.output and response.data.get("error")):
            fault = response.data.get("error")
            told = f": {self._clean(str(fault))[:300]}" if fault else ""
            raise Failure("bad_response", f"{self.name} has no answer, its status is {status!s:.60}{told}")
        if response.tokens is not None and response.tokens.policy_version is None:
            response.tokens.policy_version = self.config.policy_version
        response.waited = answer.waited
        return response

    def _refused(self, answer: Answer) -> Response:
        said = self._message(answer.content)
        if answer.status in (400, 413):
            error = _error(answer.content)
            told = f"{said} {error.get('code')} {error.get('type')}" if isinstance(error, dict) else said
            if any(words in told.lower() for words in _TOO_LONG):
                cut = {"reason": "max_output_tokens"}
                return Response.of(model=self.config.model, status="incomplete", incomplete_details=cut, note=said)
        if answer.location and 300 <= answer.status < 400:
            said = f"it is now at {self._clean(shown_url(' '.join(answer.location.split())))[:200]} {said}".rstrip()
        raise Failure(f"http_{answer.status}", f"{self.name} answered {answer.status}: {said}")

    def _message(self, content: bytes) -> str:
        """What the provider said, in one short line and without our key."""
        error = _error(content)
        if isinstance(error, dict):
            error = error.get("message")
        text = content[:2000].decode("utf-8", "replace") if error is None else str(error)
        return self._clean(" ".join(text.split()))[:300]

    def _clean(self, text: str) -> str:
        return without_keys(redacted(text, self._key, *self._sent))

    def _no_route(self, answer: Answer) -> bool:
        """Whether an answer says that the route is unknown, and not that the model is."""
        if answer.status == 200:
            return _UNEXPECTED in answer.content[:120]
        if answer.status not in (404, 405, 501):
            return False
        said = answer.content.decode("utf-8", "replace").lower()
        for url in map(urlsplit, self._urls()):  # which many quote, and which may have a model in it
            said = said.replace(url.netloc.lower(), "").replace(url.path.rstrip("/").lower(), "")
        return "model" not in said


def _from_responses(data: Any) -> Response:
    response = Response.checked(data)
    if response.output and not TOKEN_FIELDS.isdisjoint(response.output[-1]):
        response.tokens = tokens_from_response(data)
    return response


def _gathered(content: bytes, stream: ChatStream | ResponsesStream) -> Any:
    """The whole answer out of the pieces it was sent in; a server that does not stream sent it whole."""
    if content.lstrip()[:1] == b"{":
        return orjson.loads(content)
    parser = EventParser()
    for value in values([*parser.feed(content), *parser.finish()]):
        stream.add(value)
    return stream.result()


def _error(content: bytes) -> Any:
    """What an answer holds under `error`; None where it holds nothing of the kind."""
    try:
        data = orjson.loads(content)
    except orjson.JSONDecodeError:
        return None
    return data.get("error") if isinstance(data, dict) else None
