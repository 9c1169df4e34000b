"""The error that a trainer gets for a rollout without a reward."""

from __future__ import annotations

from typing import Any

import orjson

from ludus.errors import Failure
from ludus.http.app import status_of
from ludus.runtime.encoding import encode


class RolloutError(Exception):
    """A failed rollout. Status 408, 429 and from 500 on: infrastructure. Any other 4xx: the row.

    `response_content` is the body of the reply: JSON with the failure's stage, kind and cause.
    """

    def __init__(self, status: int, response_content: bytes) -> None:
        super().__init__(status, response_content)  # both, so that the error can be pickled out of a Ray actor
        self.status = status
        self.response_content = response_content

    def __str__(self) -> str:
        return f"{self.status}: {_cause(self.response_content)}"

    @classmethod
    def with_detail(cls, status: int, detail: str) -> RolloutError:
        """An error with a cause of our own, where no server replied."""
        return cls(status, encode({"detail": detail}))

    @classmethod
    def from_failure(cls, failure: Failure) -> RolloutError:
        """The error for a failure in this process."""
        return cls(status_of(failure), encode({"detail": failure.cause, "stage": failure.stage, "kind": failure.kind}))


def _cause(content: bytes) -> str:
    """The cause in a reply, with stage and kind if the reply has them."""
    try:
        body: Any = orjson.loads(content)
    except orjson.JSONDecodeError:
        return content[:500].decode("utf-8", "replace")
    if not isinstance(body, dict):
        return str(body)[:500]
    parts = [body.get("stage"), body.get("kind"), body.get("detail")]
    return ": ".join(str(part)[:500] for part in parts if part)


def response_error(status: int, content: bytes) -> RolloutError:
    """The error for a reply with a status of 400 or more; one of aiohttp's, too, if aiohttp is installed."""
    try:
        from nemo_gym._aiohttp_errors import ClientResponseError
    except ModuleNotFoundError:
        return RolloutError(status, content)
    return ClientResponseError(status, content)


def connection_error(failure: Failure) -> RolloutError:
    """The error for a request without a reply; one of aiohttp's, too, if aiohttp is installed."""
    error = RolloutError.from_failure(failure)
    try:
        from nemo_gym._aiohttp_errors import ServerUnreachableError
    except ModuleNotFoundError:
        return error
    return ServerUnreachableError(*error.args)
