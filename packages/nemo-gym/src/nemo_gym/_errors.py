"""What a trainer is told of a rollout that gave no reward."""

from __future__ import annotations

from typing import Any

import orjson

from ludus.errors import Failure
from ludus.http.app import status_of
from ludus.runtime.encoding import encode


class RolloutError(Exception):
    """A rollout that failed. From 500 on, and at 408 and 429, the world is to blame; any other status is the row's.

    `response_content` is the body of the reply: JSON with the failure's stage, kind and cause.
    """

    def __init__(self, status: int, response_content: bytes) -> None:
        super().__init__(status, response_content)  # both, so that it can be pickled out of an actor
        self.status = status
        self.response_content = response_content

    def __str__(self) -> str:
        return f"{self.status}: {_told(self.response_content)}"

    @classmethod
    def saying(cls, status: int, detail: str) -> RolloutError:
        """An error that no server told."""
        return cls(status, encode({"detail": detail}))

    @classmethod
    def of(cls, failure: Failure) -> RolloutError:
        """The error for a failure that happened on this side."""
        return cls(status_of(failure), encode({"detail": failure.cause, "stage": failure.stage, "kind": failure.kind}))


def _told(content: bytes) -> str:
    """The cause in a reply, with stage and kind where it has them."""
    try:
        told: Any = orjson.loads(content)
    except orjson.JSONDecodeError:
        return content[:500].decode("utf-8", "replace")
    if not isinstance(told, dict):
        return str(told)[:500]
    parts = [told.get("stage"), told.get("kind"), told.get("detail")]
    return ": ".join(str(part)[:500] for part in parts if part)
