"""The messages of HTTP handlers: a request comes in, and a reply or a refusal goes out."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, MutableMapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import orjson

from ludus.runtime.encoding import encode

T = TypeVar("T")
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

JSON = b"application/json"
TEXT = b"text/plain; charset=utf-8"
EVENTS = b"text/event-stream; charset=utf-8"

#: The deepest nesting of a body that we accept, and of a value that orjson can encode.
MAX_DEPTH = 200
_ORJSON_DEPTH = 254

#: A client's disconnect is watched for only once its request has taken this many seconds.
WATCH_AFTER_SECONDS = 0.5


class Incoming:
    """One request. `rollout` is the rollout id that prefixed the path; `path` is without that prefix."""

    __slots__ = ("body", "method", "named", "path", "receive", "rollout", "scope", "wants_tokens")

    def __init__(self, scope: Scope, receive: Receive, method: str, path: str) -> None:
        self.scope = scope
        self.receive = receive
        self.method = method
        self.path = path
        self.named: dict[bytes, bytes] = dict([*scope["headers"]][::-1])  #: the first header of each name
        self.body = b""
        self.rollout: str | None = None
        self.wants_tokens = False

    def header(self, name: bytes) -> str | None:
        """The value of the header with this lower-case name."""
        value = self.named.get(name)
        return None if value is None else str(value, "latin-1")

    def cookie(self, name: str) -> str | None:
        """The value of the cookie with this name."""
        if b"cookie" not in self.named:
            return None
        for header, value in self.scope["headers"]:
            if header == b"cookie":
                for part in str(value, "latin-1").split(";"):
                    key, _, content = part.strip().partition("=")
                    if key == name:
                        return content
        return None

    def json(self) -> dict[str, Any]:
        """The body as a JSON object. Raises a `Refusal` for any other body."""
        try:
            content = orjson.loads(self.body or b"{}")
        except orjson.JSONDecodeError as error:
            raise Refusal(400, f"the body is not JSON: {error}") from error
        if not isinstance(content, dict):
            raise Refusal(422, [_problem("dict_type", [], "the body must be a JSON object")])
        if not is_shallow(content, self.body):
            raise Refusal(422, [_problem("recursion", [], f"the body is nested more than {MAX_DEPTH} levels deep")])
        return content

    def receive_again(self) -> Receive:
        """A `receive` for another application: it gives the body that was read already, then waits for a disconnect."""
        messages = [{"type": "http.request", "body": self.body, "more_body": False}]

        async def receive() -> MutableMapping[str, Any]:
            return messages.pop() if messages else await self.receive()

        return receive

    async def cancel_on_disconnect(self, work: Awaitable[T]) -> T:
        """Await the work, and cancel it if the client disconnects.

        Watching starts after `WATCH_AFTER_SECONDS`, since most work is done by then.
        """
        task, watch = asyncio.current_task(), _DisconnectWatch(self._disconnected)
        timer = asyncio.get_running_loop().call_later(WATCH_AFTER_SECONDS, watch.start, task)
        try:
            return await work
        except asyncio.CancelledError:
            if watch.disconnected and task is not None and task.uncancel() == 0:
                raise Refusal(499, "the client left") from None
            raise
        finally:
            timer.cancel()
            watch.stop()

    async def _disconnected(self) -> None:
        while (await self.receive())["type"] != "http.disconnect":
            pass


class _DisconnectWatch:
    """Cancels a request's task when the client disconnects."""

    def __init__(self, wait: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._wait = wait
        self._watching: asyncio.Task[None] | None = None
        self.disconnected = False

    def start(self, task: asyncio.Task[Any] | None) -> None:
        self._watching = asyncio.ensure_future(self._cancel(task))

    def stop(self) -> None:
        if self._watching is not None:
            self._watching.cancel()

    async def _cancel(self, task: asyncio.Task[Any] | None) -> None:
        await self._wait()
        self.disconnected = True
        if task is not None:
            task.cancel()


@dataclass(slots=True)
class Reply:
    """The reply to a request: a body, or the pieces of a streamed body."""

    body: bytes = b""
    status: int = 200
    kind: bytes = JSON
    headers: Headers = field(default_factory=list)
    pieces: AsyncIterator[bytes] | None = None

    @classmethod
    def of(cls, value: Any, status: int = 200) -> Reply:
        """A reply with the value as JSON."""
        return cls(encode(value), status)


class Refusal(Exception):
    """Raised to refuse a request, with the status and the detail that the client gets."""

    def __init__(self, status: int, detail: Any, **fields: Any) -> None:
        super().__init__(str(detail))
        self.status = status
        self.content = {"detail": detail, **fields}
        self.headers: Headers = [(b"retry-after", b"1")] if status in (429, 503) else []

    @classmethod
    def field(cls, location: list[str | int], kind: str, message: str) -> Refusal:
        """The refusal of a wrong field in the body, in FastAPI's format of validation errors."""
        return cls(422, [_problem(kind, location, message)])


def detail_text(detail: Any) -> str:
    """The detail of an error reply as text: for wrong fields, which FastAPI's format lists, each field's message."""
    try:
        return "; ".join(f"{'.'.join(map(str, wrong['loc'][1:])) or 'body'}: {wrong['msg']}" for wrong in detail)
    except (TypeError, KeyError):
        return str(detail)


def _problem(kind: str, location: list[str | int], message: str) -> dict[str, Any]:
    return {"type": kind, "loc": ["body", *location], "msg": message}


def is_shallow(content: dict[str, Any], body: bytes) -> bool:
    """Whether orjson can encode the body as part of a larger value. orjson decodes deeper values than it encodes."""
    # `count` takes ten times as long
    brackets = len(body.split(b"{", MAX_DEPTH)) + len(body.split(b"[", MAX_DEPTH)) - 2
    if brackets < MAX_DEPTH:
        return True
    wrapped: Any = content
    for _ in range(_ORJSON_DEPTH - MAX_DEPTH):
        wrapped = [wrapped]
    try:
        orjson.dumps(wrapped)
    except orjson.JSONEncodeError:
        return False
    return True
