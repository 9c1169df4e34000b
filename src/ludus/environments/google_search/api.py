"""Requests to a search service: JSON both ways, with a timeout and retries.

An unreachable service, a refused key and an exhausted quota are infrastructure errors. Each is a `Failure`, and the
rollout has no reward. Keys are removed from every text that leaves this module.
"""

from __future__ import annotations

import asyncio
from typing import Any, Self

import aiohttp
import orjson

from ludus.errors import Failure
from ludus.http.retries import Attempts, Retries
from ludus.runtime.failure_kinds import kind_of
from ludus.runtime.keys import redacted

#: Failures of search services that are retried, beyond those of every server, and their budgets.
_RETRIED_TOO = {"http_520": "server", "timeout": "dropped"}


class Api:
    """One service. `secrets` are removed from its error texts."""

    def __init__(self, name: str, seconds: float, retries: Retries, *secrets: str) -> None:
        self._name = name
        self._seconds = seconds
        self._retries = retries
        self._secrets = secrets

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=self._seconds), cookie_jar=aiohttp.DummyCookieJar()
        )
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self._session.close()

    async def ask(self, method: str, url: str, **request: Any) -> dict[str, Any]:
        """The JSON object that the service answers with. Raises a `Failure` if there is none."""
        attempts = Attempts(self._retries)
        while True:
            try:
                return await self._once(method, url, request)
            except Failure as failure:
                budget = kind_of(failure.kind).retried or _RETRIED_TOO.get(failure.kind)
                pause = attempts.pause(budget) if budget else None
                if pause is None:
                    raise
            await asyncio.sleep(pause)

    async def _once(self, method: str, url: str, request: dict[str, Any]) -> dict[str, Any]:
        try:
            async with self._session.request(method, url, allow_redirects=False, **request) as reply:
                status, body = reply.status, await reply.read()
        except TimeoutError:
            raise self._failure("timeout", f"gave no answer in {self._seconds:g} s") from None
        except aiohttp.ClientConnectorError as error:
            raise self._failure("refused", f"cannot be reached: {error.strerror or error}") from None
        except (aiohttp.ClientError, ValueError) as error:
            raise self._failure("disconnected", f"gave no answer: {type(error).__name__}: {error}") from None
        if status != 200:
            raise self._failure(f"http_{status}", f"answered {status}: {body.decode('utf-8', 'replace')}")
        try:
            answer = orjson.loads(body)
        except orjson.JSONDecodeError:
            answer = None
        if not isinstance(answer, dict):
            raise self._failure("bad_response", f"did not answer with a JSON object: {body!r}")
        return answer

    def _failure(self, kind: str, what: str) -> Failure:
        return Failure(
            kind, redacted(f"{self._name} {what}", *self._secrets)[:300]
        )  # shorten after redaction: half a key is a leak too
