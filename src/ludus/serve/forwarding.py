"""Forwards the requests of a session to the worker that holds the session.

All workers share one address, so a request may arrive at any of them. A session's id begins with the number of its
worker; any other worker forwards the request there and returns the reply unchanged. On one machine it goes over a Unix
socket that only this user can open.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from hashlib import blake2b
from pathlib import Path
from typing import Protocol, Self

from ludus.errors import Failure
from ludus.http.app import App
from ludus.http.client import Connections
from ludus.http.listening import Listening
from ludus.http.messages import Incoming, Receive, Refusal, Scope, Send
from ludus.runtime.numbers import whole_number

_HOP_BY_HOP = (b"connection", b"keep-alive", b"transfer-encoding", b"content-length")
_REPLY_BYTES = 1 << 40  # the reply of another worker is as large as this worker's own may be
_LOST = b'{"detail":"this session is over: its worker died","kind":"session_lost"}'


class Peers(Protocol):
    """How the workers reach each other's servers."""

    async def listen(self, name: str, worker: int) -> socket.socket:
        """A worker's socket for forwarded requests."""

    async def connect(self, name: str, worker: int) -> Connections:
        """Connections to another worker's server (`peer_connections`). Raises OSError if there is none."""

    def close(self, name: str, worker: int) -> None:
        """The server stops listening."""


def peer_connections(url: str, unix: str | None = None) -> Connections:
    """Connections to another worker's server, over which requests go on as they came."""
    return Connections(url, {}, unix=unix, names_host=False, reply_bytes=_REPLY_BYTES)


class UnixPeers:
    """Workers on one machine: sockets in a folder that only this user can open."""

    def __init__(self, folder: str) -> None:
        self._folder = Path(folder)

    async def listen(self, name: str, worker: int) -> socket.socket:
        """Bind the socket of a worker."""
        path = self._path(name, worker)
        path.unlink(missing_ok=True)
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listening.bind(str(path))
        listening.listen(1024)
        listening.setblocking(False)
        return listening

    async def connect(self, name: str, worker: int) -> Connections:
        """Connections to the socket of a worker."""
        return peer_connections("http://worker", unix=str(self._path(name, worker)))

    def close(self, name: str, worker: int) -> None:
        """Delete the socket."""
        self._path(name, worker).unlink(missing_ok=True)

    def _path(self, name: str, worker: int) -> Path:
        return self._folder / f"{blake2b(name.encode(), digest_size=8).hexdigest()}.{worker}"


class Forwarding:
    """An application in front of a server: it forwards the requests of other workers' sessions."""

    def __init__(
        self, app: App, session_of: Callable[[Incoming], str | None], name: str, worker: int, peers: Peers
    ) -> None:
        self._app = app
        self._session_of = session_of
        self._name = name
        self._worker = worker
        self._peers = peers
        self._clients: dict[int, Connections] = {}
        self._private: Listening | None = None

    async def __aenter__(self) -> Self:
        """Listen for requests that other workers forward."""
        listening = await self._peers.listen(self._name, self._worker)
        self._private = Listening(self._app, listening)
        await self._private.begin()
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._private is not None:
            await self._private.stop()
        for client in self._clients.values():
            await client.close()
        self._peers.close(self._name, self._worker)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or forward it to the worker that holds its session."""
        incoming = Incoming(scope, receive, scope["method"], scope["path"])
        session = self._session_of(incoming) or ""
        owner = whole_number(session.partition(".")[0], digits=5)
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
        headers: dict[str, str] = {}
        for key, value in scope["headers"]:
            if key not in _HOP_BY_HOP:
                name = key.decode("latin-1")
                between = "; " if name == "cookie" else ", "
                headers[name] = f"{headers[name]}{between}{_text(value)}" if name in headers else _text(value)
        try:
            reply = await (await self._client(owner)).request(scope["method"], scope["path"], body, headers)
            content, status = reply.body, reply.status
            back = [(key.lower(), value) for key, value in reply.headers if key.lower() not in _HOP_BY_HOP]
        except (Failure, OSError):
            content, status, back = _LOST, 410, [(b"content-type", b"application/json")]
        length = (b"content-length", str(len(content)).encode())
        await send({"type": "http.response.start", "status": status, "headers": [*back, length]})
        await send({"type": "http.response.body", "body": content})

    async def _client(self, owner: int) -> Connections:
        if owner not in self._clients:
            self._clients[owner] = await self._peers.connect(self._name, owner)
        return self._clients[owner]


def _text(value: bytes) -> str:
    """A header's value as text. The client encodes text as UTF-8, so UTF-8 bytes survive."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")
