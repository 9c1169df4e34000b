"""A client for an endpoint that speaks OpenAI's APIs, with retries. Answers are plain dictionaries.

aiohttp is imported by the first call, so that models can be imported without it.
"""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
from pydantic import BaseModel, PrivateAttr

#: Statuses of an overloaded endpoint. An internal client tries again until they end.
RATE_LIMIT_ERROR_CODES = [429, 502, 503, 504, 520]
#: Statuses after which a request is sent again.
RETRY_ERROR_CODES = [*RATE_LIMIT_ERROR_CODES, 500, 404, 408]

RETRY_SECONDS = 0.5

_BAD_KEY_CODES = (401, 403)
_SPENT_QUOTA = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_not_active", "quota_exceeded"})


class PermanentEndpointError(Exception):
    """No further request can succeed: the key is bad, or its quota is spent."""

    def __init__(self, url: str, status: int, response_content: bytes) -> None:
        super().__init__(url, status, response_content)  # all, so that the error can be pickled
        self.url = url
        self.status = status
        self.response_content = response_content

    def __str__(self) -> str:
        reason = "the quota of the API key is spent" if self.status == 429 else "the API key is refused"
        text = self.response_content[:200].decode("utf-8", "replace")
        return f"{self.url} answers {self.status}: {reason}. Set another `api_key`. {text}"


class NeMoGymAsyncOpenAI(BaseModel):
    """A client of one endpoint.

    A request is sent at most `max_http_attempts` times if the endpoint answers with errors. An `internal` endpoint is
    one of our own, so its rate limits do not count. Lost connections are retried without end, or
    `max_connection_retries` times.
    """

    base_url: str
    api_key: str
    internal: bool = False
    default_headers: dict[str, str] = {}
    max_connection_retries: int | None = None
    max_http_attempts: int = 3

    _permanent_error: PermanentEndpointError | None = PrivateAttr(default=None)

    async def create_models(self) -> dict[str, Any]:
        """The models of the endpoint."""
        return await self._request("GET", self._url("/models"), None)

    async def create_chat_completion(self, **body: Any) -> dict[str, Any]:
        """A chat completion."""
        return await self._request("POST", self._url("/chat/completions"), body)

    async def create_completion(self, **body: Any) -> dict[str, Any]:
        """A completion of a prompt."""
        return await self._request("POST", self._url("/completions"), body)

    async def create_response(self, **body: Any) -> dict[str, Any]:
        """A response of the Responses API."""
        return await self._request("POST", self._url("/responses"), body)

    async def create_tokenize(self, **body: Any) -> dict[str, Any]:
        """The token ids of a prompt, as vLLM gives them."""
        return await self._request("POST", self.base_url.rstrip("/").removesuffix("/v1") + "/tokenize", body)

    def _url(self, path: str) -> str:
        return self.base_url.rstrip("/") + path

    async def _request(self, method: str, url: str, body: dict[str, Any] | None) -> dict[str, Any]:
        content = None if body is None else orjson.dumps(body, default=_plain)
        attempts = 0
        while True:
            if self._permanent_error is not None:
                raise self._permanent_error
            status, reply, error = await self._send(method, url, content)
            if error is None:
                parsed: dict[str, Any] = orjson.loads(reply)
                return parsed
            if status in _BAD_KEY_CODES or (status == 429 and _is_quota_spent(reply)):
                self._permanent_error = PermanentEndpointError(url, status, reply)
                raise self._permanent_error from error
            attempts += not (self.internal and status in RATE_LIMIT_ERROR_CODES)
            if status not in RETRY_ERROR_CODES or attempts >= self.max_http_attempts:
                raise error
            await asyncio.sleep(RETRY_SECONDS)

    async def _send(self, method: str, url: str, content: bytes | None) -> tuple[int, bytes, Exception | None]:
        """Status, body and, from status 400 on, the error. Lost connections are retried."""
        import aiohttp

        from nemo_gym._rollout_header import rollout_headers

        headers = {**rollout_headers(url), "Authorization": f"Bearer {self.api_key}", **self.default_headers}
        if content is not None:
            headers["Content-Type"] = "application/json"
        losses = 0
        while True:
            try:
                async with (
                    aiohttp.ClientSession(
                        timeout=aiohttp.ClientTimeout(total=None), cookie_jar=aiohttp.DummyCookieJar()
                    ) as session,
                    session.request(method, url, data=content, headers=headers) as response,
                ):
                    reply = await response.read()
                    try:
                        response.raise_for_status()
                    except aiohttp.ClientResponseError as error:
                        error.response_content = reply  # type: ignore[attr-defined]
                        return response.status, reply, error
                    return response.status, reply, None
            except (aiohttp.ClientConnectionError, aiohttp.ClientPayloadError):
                losses += 1
                if self.max_connection_retries is not None and losses > self.max_connection_retries:
                    raise
                await asyncio.sleep(RETRY_SECONDS)


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(exclude_unset=True)
    raise TypeError(f"{type(value).__name__} is not JSON")


def _is_quota_spent(reply: bytes) -> bool:
    try:
        body = orjson.loads(reply)
    except orjson.JSONDecodeError:
        return False
    error = body.get("error", body) if isinstance(body, dict) else None
    return isinstance(error, dict) and any(str(error.get(key)) in _SPENT_QUOTA for key in ("code", "type"))
