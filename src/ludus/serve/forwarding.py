"""Forwards the requests of a session to the worker that holds the session.

Workers accept from the same socket, so a request may arrive at any of them. A session's id begins with the number of
its worker. Another worker that gets the request forwards it over a Unix socket that only this user can open, and
returns the reply unchanged.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Self

import aiohttp

from ludus.http.app import App
from ludus.http.listening import Listening
from ludus.http.messages import Incoming, Receive, Refusal, Scope, Send

_HOP_BY_HOP = (b"connection", b"keep-alive", b"transfer-encoding", b"content-length")
_LOST = b'{"detail":"this session is over: its worker died","kind":"session_lost"}'


class Forwarding:
    """An application in front of a server: it forwards the requests of other workers' sessions."""

    def __init__(
        self, app: App, session_of: Callable[[Incoming], str | None], name: str, worker: int, folder: str
    ) -> None:
        self._app = app
        self._session_of = session_of
        self._name = name
        self._worker = worker
        self._folder = Path(folder)
        self._clients: dict[int, aiohttp.ClientSession] = {}
        self._private: Listening | None = None

    async def __aenter__(self) -> Self:
        """Listen for requests that other workers forward."""
        path = self._path(self._worker)
        path.unlink(missing_ok=True)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listening.bind(str(path))
        listening.listen(1024)
        listening.setblocking(False)
        self._private = Listening(self._app, listening)
        await self._private.begin()
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._private is not None:
            await self._private.stop()
        for client in self._clients.values():
            await client.close()
        self._path(self._worker).unlink(missing_ok=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or forward it to the worker that holds its session."""
        incoming = Incoming(scope, receive, scope["method"], scope["path"])
        owner = _worker_in(self._session_of(incoming))
        if owner is None or owner == self._worker:
            await self._app(scope, receive, send)
            return
        try:
            await self._forward(owner, incoming, send)
        except Refusal as refused:
            await self._app.refuse(refused, send)

    async def _forward(self, owner: int, incoming: Incoming, send: Send) -> None:
        self._app.admit(incoming)
        body, scope = await self._app.guard.read(incoming), incoming.scope
        headers = [(key, value) for key, value in scope["headers"] if key not in _HOP_BY_HOP]
        text = [(key.decode("latin-1"), _text(value)) for key, value in headers]
        try:
            url = f"http://worker{scope['path']}"
            async with self._client(owner).request(scope["method"], url, data=body, headers=text) as reply:
                content, status = await reply.read(), reply.status
                back = [(k.lower(), v) for k, v in reply.raw_headers if k.lower() not in _HOP_BY_HOP]
        except (aiohttp.ClientError, OSError):
            content, status, back = _LOST, 410, [(b"content-type", b"application/json")]
        length = (b"content-length", str(len(content)).encode())
        await send({"type": "http.response.start", "status": status, "headers": [*back, length]})
        await send({"type": "http.response.body", "body": content})

    def _client(self, owner: int) -> aiohttp.ClientSession:
        if owner not in self._clients:
            connector = aiohttp.UnixConnector(str(self._path(owner)), limit=0)
            timeout = aiohttp.ClientTimeout(total=None)
            jar = aiohttp.DummyCookieJar()
            self._clients[owner] = aiohttp.ClientSession(
                connector=connector, timeout=timeout, cookie_jar=jar, skip_auto_headers=("content-type",)
            )
        return self._clients[owner]

    def _path(self, worker: int) -> Path:
        return self._folder / f"{blake2b(self._name.encode(), digest_size=8).hexdigest()}.{worker}"


def _text(value: bytes) -> str:
    """A header's value as text. aiohttp sends text as UTF-8, so the bytes stay the same if they are UTF-8."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _worker_in(session: str | None) -> int | None:
    number = (session or "").partition(".")[0]
    return int(number) if number.isdigit() and len(number) < 6 else None
