"""The errors of replies and of servers that do not reply, for code that catches aiohttp's. Needs aiohttp.

The first class has aiohttp's name: authors put `type(error).__name__` into messages, and compare it in tests.
"""

from __future__ import annotations

from http import HTTPStatus

import aiohttp

from nemo_gym._errors import RolloutError


class ClientResponseError(RolloutError, aiohttp.ClientResponseError):
    """aiohttp's `ClientResponseError` with the body of the reply as `response_content`. It can be pickled."""

    def __init__(self, status: int, response_content: bytes) -> None:
        known = status in set(HTTPStatus)
        message = HTTPStatus(status).phrase if known else ""
        aiohttp.ClientResponseError.__init__(self, None, (), status=status, message=message)  # type: ignore[arg-type]
        self.response_content = response_content
        self.args = status, response_content  # what pickle gives to this function


class ServerUnreachableError(RolloutError, aiohttp.ClientConnectionError):
    """aiohttp's `ClientConnectionError` for a server that did not reply."""
