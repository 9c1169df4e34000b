"""Any endpoint that speaks the Responses API or Chat Completions, by URL.

The key comes from an environment variable and goes nowhere but the request's header. Connections that the server
dropped before it answered are tried again at once; answers that say "later" (429, 5xx) are tried again after a
pause, a few times.
"""

from __future__ import annotations

import asyncio
import os
import random
from typing import Any, Literal

import aiohttp
import orjson
from pydantic import NonNegativeInt
from yarl import URL

from ludus.encoding import compact
from ludus.errors import UserError
from ludus.model import Model, ModelConfig, Request
from ludus.models.chat import from_chat, to_chat
from ludus.outcome import Failure
from ludus.response import Response

DEFAULT_URL = "https://api.openai.com/v1"
_DROPPED = (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, ConnectionResetError)
_FREE_RETRIES = 8
_LONGEST_PAUSE = 60.0


class OpenAIModel(Model):
    """A model behind HTTP. `api: auto` asks for Responses first and falls back to Chat where that is not known."""

    class Config(ModelConfig):
        """Settings of an endpoint."""

        model: str
        base_url: str | None = None
        api: Literal["auto", "responses", "chat"] = "auto"
        api_key_env: str = "OPENAI_API_KEY"
        retries: NonNegativeInt = 4
        temperature: float | None = None
        top_p: float | None = None
        max_output_tokens: int | None = None

    def __init__(self, config: Config) -> None:
        self.config = config
        url = config.base_url or os.environ.get("OPENAI_BASE_URL") or DEFAULT_URL
        self.base_url = url.rstrip("/")
        self._responses_url = URL(f"{self.base_url}/responses")
        self._chat_url = URL(f"{self.base_url}/chat/completions")
        self.name = f"{self.base_url}#{config.model}" if url != DEFAULT_URL else f"openai:{config.model}"
        self._key = os.environ.get(config.api_key_env, "")
        if url == DEFAULT_URL and not self._key:
            raise UserError(f"model openai:{config.model} needs a key", f"Set {config.api_key_env}")
        self._chat = config.api == "chat"
        defaults = config.model_dump(include={"temperature", "top_p", "max_output_tokens"}, exclude_none=True)
        self._fixed = {"model": config.model, **defaults}
        self._session: aiohttp.ClientSession | None = None

    async def start(self) -> None:
        """Open the connection pool; it has no limit of its own, because the collector bounds what is in flight."""
        headers = {"Content-Type": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=30),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=30),
            headers=headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=True,
        )

    async def stop(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def respond(self, request: Request) -> Response:
        """Answer one request through the endpoint."""
        if not self._chat:
            body = {**self._fixed, **request.params, "input": request.input.encoded()}
            data = await self._post(self._responses_url, compact(orjson.dumps(body)))
            if data is not None:
                return _accepted(data)
            self._chat = True
        data = await self._post(self._chat_url, orjson.dumps(to_chat(request, self._fixed)))
        return _accepted(from_chat(data))

    async def _post(self, url: URL, body: bytes) -> Any:
        """One call with its retries. None means that the endpoint does not know the Responses API."""
        dropped = pauses = 0
        while True:
            try:
                status, content, retry_after = await self._send(url, body)
            except _DROPPED as error:
                if isinstance(error, aiohttp.ClientConnectorError) or dropped >= _FREE_RETRIES:
                    raise self._unreachable(error) from error
                dropped += 1
                continue
            except aiohttp.ClientError as error:
                raise Failure("disconnected", f"{self.name}: {type(error).__name__}: {error}") from error
            if status == 200:
                return self._decoded(content)
            if url is self._responses_url and self.config.api == "auto" and _no_route(status, content):
                return None
            if status not in (408, 409, 429, 500, 502, 503, 504) or pauses >= self.config.retries:
                raise Failure(f"http_{status}", f"{self.name} answered {status}: {self._message(content)}")
            pauses += 1
            await asyncio.sleep(
                retry_after if retry_after is not None else random.uniform(0.5, 1.0) * 2 ** (pauses - 1)
            )

    async def _send(self, url: URL, body: bytes) -> tuple[int, bytes, float | None]:
        if self._session is None:
            await self.start()
        assert self._session is not None
        async with self._session.post(url, data=body, allow_redirects=False) as answer:
            content = await answer.read()
            retry_after = None if answer.status == 200 else _seconds(answer.headers.get("Retry-After"))
            return answer.status, content, retry_after

    def _decoded(self, content: bytes) -> Any:
        try:
            return orjson.loads(content)
        except orjson.JSONDecodeError as error:
            raise Failure("bad_response", f"{self.name} sent no JSON: {self._message(content)}") from error

    def _message(self, content: bytes) -> str:
        """What the provider said, in one short line and without our key."""
        text = content[:2000].decode("utf-8", "replace")
        try:
            error = orjson.loads(content)["error"]
            text = str(error["message"] if isinstance(error, dict) else error)
        except (orjson.JSONDecodeError, KeyError, TypeError):
            pass
        text = " ".join(text.split())[:300]
        return text.replace(self._key, "***") if self._key else text

    def _unreachable(self, error: Exception) -> Failure:
        if isinstance(error, aiohttp.ClientConnectorError):
            return Failure("refused", f"cannot reach {self.base_url}: {error.strerror or error}")
        return Failure("disconnected", f"{self.name} dropped the connection before it answered: {error}")


def _accepted(data: Any) -> Response:
    response = Response.checked(data)
    if response.status == "failed":
        raise Failure("bad_response", f"the provider failed: {str(data.get('error'))[:300]}")
    return response


def _no_route(status: int, content: bytes) -> bool:
    """Whether an answer says that the route is unknown, and not that the model is."""
    return status in (404, 405, 501) and b"model" not in content.lower()


def _seconds(header: str | None) -> float | None:
    try:
        return min(float(header), _LONGEST_PAUSE) if header else None
    except ValueError:
        return None
