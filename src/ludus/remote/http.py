"""A client for our servers, and for others that speak like them: one request, one reply, failures typed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson

from ludus.errors import Failure, UserError
from ludus.http.client import Connections, HttpReply
from ludus.runtime.keys import look_up_key, without_keys_and_paths

SESSION = "x-ludus-session"
SEED = "x-ludus-seed"
ROLLOUT = "x-ludus-rollout"
LAST = "x-ludus-last"


class Client:
    """Asks one server."""

    def __init__(self, connections: Connections) -> None:
        self.url = connections.url
        self._connections = connections

    async def post(self, path: str, body: bytes, headers: dict[str, str] | None = None) -> HttpReply:
        """Send one request and read its reply, whatever its status."""
        return await self._connections.request("POST", path, body, headers)

    async def get(self, path: str) -> HttpReply:
        """Fetch something."""
        return await self._connections.request("GET", path)

    def checked(self, reply: HttpReply) -> Any:
        """The JSON of a reply that went well; a reply that did not is the failure that it tells of."""
        if reply.status == 200:
            return reply.json()
        raise self.failure(reply)

    def failure(self, reply: HttpReply) -> Failure:
        """What a server said went wrong."""
        try:
            told = orjson.loads(reply.body)
        except orjson.JSONDecodeError:
            told = None
        if isinstance(told, dict) and isinstance(told.get("kind"), str):
            stage = told.get("stage")
            known = stage if stage in ("open", "model", "tool", "verify", "close", "agent") else None
            return Failure(told["kind"], without_keys_and_paths(str(told.get("detail"))), stage=known)
        return Failure(f"http_{reply.status}", f"{self.url} answered {reply.status}: {reply.start()}")


@asynccontextmanager
async def connect(url: str, token_env: str) -> AsyncIterator[Client]:
    """A client for a server while it is entered. The token comes from the environment, where there is one."""
    token = look_up_key(token_env)
    if not token.isprintable():
        raise UserError(f"{token_env} holds a line break or the like", "Set it to the token alone")
    headers = {"Content-Type": "application/json", **({"Authorization": f"Bearer {token}"} if token else {})}
    connections = Connections(url, headers)
    try:
        yield Client(connections)
    finally:
        await connections.close()
