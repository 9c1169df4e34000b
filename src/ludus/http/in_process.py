"""A request to a server in this process, without a socket: the same guard and the same replies as over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any

from ludus.http.app import App
from ludus.http.messages import JSON, Headers


async def ask(
    app: App, path: str, body: bytes = b"", *, method: str = "POST", token: str | None = None
) -> tuple[int, bytes]:
    """Send a request to an application, and return the status and the body of its reply.

    status, body = await ask(app, "/run", encode(row))
    """
    messages = [{"type": "http.request", "body": body, "more_body": False}]
    sent: list[MutableMapping[str, Any]] = []
    headers: Headers = [(b"host", b"localhost"), (b"content-type", JSON)]
    if token is not None:
        headers.append((b"authorization", f"Bearer {token}".encode()))

    async def receive() -> MutableMapping[str, Any]:
        if not messages:
            await asyncio.Event().wait()  # this client never disconnects: a caller that gives up cancels `ask`
        return messages.pop()

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    await app({"type": "http", "method": method, "path": path, "headers": headers}, receive, send)
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])
