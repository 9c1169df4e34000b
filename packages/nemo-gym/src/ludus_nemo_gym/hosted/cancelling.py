"""An application whose handlers are cancelled when nobody waits for their reply any more."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any

from ludus.http.app import App
from ludus.http.guard import Guard
from ludus.http.messages import Incoming, Receive, Refusal, Scope, Send

#: The status of a refusal after the client has left.
_CLIENT_LEFT = 499


class Cancelling:
    """An ASGI application around another one. It reads bodies whole, and cancels the handler of a client that left."""

    def __init__(self, app: Any) -> None:
        self._app = app
        self._guard, self._refusing = Guard(), App()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        incoming = Incoming(scope, receive, scope["method"], scope["path"])
        try:
            body = await self._guard.read(incoming)
            await incoming.cancel_on_disconnect(self._app(scope, _given(body), send))
        except Refusal as refusal:
            if refusal.status != _CLIENT_LEFT:
                await self._refusing.refuse(refusal, send)


def _given(body: bytes) -> Receive:
    """A `receive` that gives a body, and then waits: `Cancelling` watches for the client's disconnect."""
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> MutableMapping[str, Any]:
        if not messages:
            await asyncio.Event().wait()
        return messages.pop()

    return receive
