"""A request to a server in this process, without a socket: the same guard and the same replies as over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any
from urllib.parse import unquote

from ludus.http.connection import HttpReply
from ludus.http.exchange import Application
from ludus.http.messages import JSON, Headers

_ASGI = {"version": "3.0", "spec_version": "2.3"}


async def ask(
    app: Application, path: str, body: bytes = b"", *, method: str = "POST", token: str | None = None
) -> tuple[int, bytes]:
    """Send a request to an application, and return the status and the body of its reply.

    status, body = await ask(app, "/run", encode(row))
    """
    headers = {"authorization": f"Bearer {token}"} if token is not None else {}
    reply = await send_request(app, method, path, body, headers)
    return reply.status, reply.body


async def send_request(
    app: Application, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None
) -> HttpReply:
    """Send a request to any ASGI application, and return its reply."""
    messages = [{"type": "http.request", "body": body, "more_body": False}]
    sent: list[MutableMapping[str, Any]] = []
    lines: Headers = [(b"host", b"localhost"), (b"content-type", JSON), (b"content-length", b"%d" % len(body))]
    lines += [(name.lower().encode(), value.encode("latin-1", "replace")) for name, value in (headers or {}).items()]

    async def receive() -> MutableMapping[str, Any]:
        if not messages:
            await asyncio.Event().wait()  # this client never disconnects: a caller that gives up cancels the request
        return messages.pop()

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    raw, _, query = path.partition("?")
    scope = {
        "type": "http",
        "asgi": _ASGI,
        "http_version": "1.1",
        "scheme": "http",
        "method": method,
        "path": unquote(raw),
        "raw_path": raw.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": lines,
        "client": ("127.0.0.1", 0),
        "server": ("localhost", None),
        "state": {},
    }
    await app(scope, receive, send)
    content = b"".join(message.get("body", b"") for message in sent[1:])
    return HttpReply(sent[0]["status"], content, list(sent[0].get("headers", ())))
