"""A client for our servers and for servers with the same routes. An error reply becomes a `Failure`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson

from ludus.errors import Failure, UserError
from ludus.http.client import Connections
from ludus.http.connection import HttpReply
from ludus.http.messages import detail_text
from ludus.runtime.keys import look_up_key, without_keys_and_paths

SESSION = "x-ludus-session"
SEED = "x-ludus-seed"
ROLLOUT = "x-ludus-rollout"
LAST = "x-ludus-last"
RAISED = "x-ludus-raised"  # in a tool's reply: the class of its exception, a space, and the author's line if known
#: A `RemoteModel` sends the session, seed and turn of a call in this header, as JSON.
CALL = "x-ludus-call"


class Client:
    """Sends requests to one server."""

    def __init__(self, connections: Connections) -> None:
        self.url = connections.url
        self._connections = connections

    async def post(self, path: str, body: bytes, headers: dict[str, str] | None = None) -> HttpReply:
        """Send a POST request and return the reply, whatever its status."""
        return await self._connections.request("POST", path, body, headers)

    async def send(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> HttpReply:
        """Send a request and return the reply, whatever its status."""
        return await self._connections.request(method, path, body, headers)

    async def get(self, path: str) -> HttpReply:
        """Send a GET request and return the reply, whatever its status."""
        return await self._connections.request("GET", path)

    def checked(self, reply: HttpReply) -> Any:
        """The JSON of a reply with status 200. Any other reply is raised as a `Failure`."""
        if reply.status == 200:
            return reply.json()
        raise self.failure(reply)

    def failure(self, reply: HttpReply) -> Failure:
        """The failure in an error reply: with the stage and kind that the server sent, or of kind `http_STATUS`."""
        try:
            content = orjson.loads(reply.body)
        except orjson.JSONDecodeError:
            content = None
        if isinstance(content, dict) and isinstance(content.get("kind"), str):
            stage = content.get("stage")
            known = stage if stage in ("open", "model", "tool", "verify", "close", "agent") else None
            return Failure(content["kind"], without_keys_and_paths(detail_text(content.get("detail"))), stage=known)
        return Failure(f"http_{reply.status}", f"{self.url} answered {reply.status}: {reply.start()}")


@asynccontextmanager
async def connect(url: str, token_env: str, *, content_type: str = "application/json") -> AsyncIterator[Client]:
    """A client for the server at `url`, as a context manager. `token_env` names the variable with the token, if any."""
    token = look_up_key(token_env)
    if not token.isprintable():
        raise UserError(f"{token_env} holds a line break or another control character", "Set it to the token alone")
    headers = {"Content-Type": content_type, **({"Authorization": f"Bearer {token}"} if token else {})}
    connections = Connections(url, headers, channels=True)
    try:
        yield Client(connections)
    finally:
        await connections.close()
