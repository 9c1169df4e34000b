"""The error of a reply with a status of 400 or more, for code that catches aiohttp's exceptions. Needs aiohttp."""

from __future__ import annotations

from http import HTTPStatus

from aiohttp import ClientResponseError

from nemo_gym._errors import RolloutError


class ServerResponseError(RolloutError, ClientResponseError):
    """aiohttp's `ClientResponseError` with the body of the reply as `response_content`. It can be pickled."""

    def __init__(self, status: int, response_content: bytes) -> None:
        known = status in set(HTTPStatus)
        message = HTTPStatus(status).phrase if known else ""
        ClientResponseError.__init__(self, None, (), status=status, message=message)  # type: ignore[arg-type]
        self.response_content = response_content
        self.args = status, response_content  # what pickle gives to this function
