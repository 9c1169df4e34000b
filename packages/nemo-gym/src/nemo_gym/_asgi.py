"""What a middleware needs that reads whole requests and whole replies."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import orjson

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
AsgiApp = Callable[[Message, Receive, Send], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]


async def read_body(receive: Receive) -> bytes:
    """The whole body of a request."""
    pieces: list[bytes] = []
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return b"".join(pieces)
        pieces.append(message.get("body", b""))
        if not message.get("more_body"):
            return b"".join(pieces)


def replay(body: bytes, receive: Receive) -> Receive:
    """Receives a body that was already read, and after it what the client sends."""
    rest: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replayed() -> Message:
        return rest.pop() if rest else await receive()

    return replayed


def with_length(scope: Message, body: bytes) -> Message:
    """The scope of a request whose body was replaced."""
    headers = [(name, value) for name, value in scope["headers"] if name.lower() != b"content-length"]
    return {**scope, "headers": [*headers, (b"content-length", str(len(body)).encode())]}


def header(scope: Message, name: bytes) -> str | None:
    """A header of a request."""
    return next((value.decode("latin-1") for key, value in scope["headers"] if key.lower() == name), None)


class BufferedReply:
    """Takes the place of `send` and holds the reply back."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: Headers = []
        self.body = b""

    async def __call__(self, message: Message) -> None:
        """Take one message of the application."""
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], list(message.get("headers", []))
        elif message["type"] == "http.response.body":
            self.body += message.get("body", b"")

    def replace(self, content: Any) -> None:
        """Put a JSON value in place of the body."""
        self.body = orjson.dumps(content)
        kept = [(name, value) for name, value in self.headers if name.lower() != b"content-length"]
        self.headers = [*kept, (b"content-length", str(len(self.body)).encode())]

    async def pass_on(self, send: Send) -> None:
        """Send the reply as it is."""
        await send({"type": "http.response.start", "status": self.status, "headers": self.headers})
        await send({"type": "http.response.body", "body": self.body})
