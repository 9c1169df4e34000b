"""The errors of replies and of servers that do not reply, for code that catches aiohttp's. Needs aiohttp."""

from __future__ import annotations

from http import HTTPStatus

from aiohttp import ClientConnectionError, ClientResponseError

from nemo_gym._errors import RolloutError


class ServerResponseError(RolloutError, ClientResponseError):
    """aiohttp's `ClientResponseError` with the body of the reply as `response_content`. It can be pickled."""

    def __init__(self, status: int, response_content: bytes) -> None:
        known = status in set(HTTPStatus)
        message = HTTPStatus(status).phrase if known else ""
        ClientResponseError.__init__(self, None, (), status=status, message=message)  # type: ignore[arg-type]
        self.response_content = response_content
        self.args = status, response_content  # what pickle gives to this function


class ServerUnreachableError(RolloutError, ClientConnectionError):
    """aiohttp's `ClientConnectionError` for a server that did not reply."""
