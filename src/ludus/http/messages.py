"""What handlers take and give: a request, a reply, and a refusal that becomes one."""

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

#: How deep a body may be nested, and how deep orjson writes at most.
DEEPEST = 200
_ORJSON_DEPTH = 254

#: For how many seconds nobody looks whether the client of a long request has left.
PATIENCE = 0.5


@dataclass(slots=True)
class Incoming:
    """One request. Its path is without the rollout's prefix; `rollout` is what that named."""

    scope: Scope
    receive: Receive
    method: str
    path: str
    body: bytes = b""
    rollout: str | None = None
    wants_tokens: bool = False

    def header(self, name: bytes) -> str | None:
        """A header by its lower-case name."""
        for key, value in self.scope["headers"]:
            if key == name:
                return str(value, "latin-1")
        return None

    def cookie(self, name: str) -> str | None:
        """A cookie by its name."""
        for key, value in self.scope["headers"]:
            if key == b"cookie":
                for part in str(value, "latin-1").split(";"):
                    given, _, content = part.strip().partition("=")
                    if given == name:
                        return content
        return None

    def json(self) -> dict[str, Any]:
        """The body as a JSON object; anything else is refused."""
        try:
            found = orjson.loads(self.body or b"{}")
        except orjson.JSONDecodeError as error:
            raise Refusal(400, f"the body is not JSON: {error}") from error
        if not isinstance(found, dict):
            raise Refusal(422, [_problem("dict_type", [], "the body must be a JSON object")])
        if not _is_shallow(found, self.body):
            raise Refusal(422, [_problem("recursion", [], f"the body is nested more than {DEEPEST} levels deep")])
        return found

    async def unless_gone(self, work: Awaitable[T]) -> T:
        """Await something that is only worth doing while the client waits for it: it is cancelled when that leaves.

        Nobody looks whether it left before the work has taken a while: most work is done by then.
        """
        task, leaving = asyncio.current_task(), _Leaving(self._left)
        looking = asyncio.get_running_loop().call_later(PATIENCE, leaving.watch, task)
        try:
            return await work
        except asyncio.CancelledError:
            if leaving.left and task is not None and task.uncancel() == 0:
                raise Refusal(499, "the client left") from None
            raise
        finally:
            looking.cancel()
            leaving.stop()

    async def _left(self) -> None:
        while (await self.receive())["type"] != "http.disconnect":
            pass


class _Leaving:
    """Watches whether a client leaves, and cancels the task that works for it if so."""

    def __init__(self, left: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._left = left
        self._watching: asyncio.Task[None] | None = None
        self.left = False

    def watch(self, task: asyncio.Task[Any] | None) -> None:
        self._watching = asyncio.ensure_future(self._cancel(task))

    def stop(self) -> None:
        if self._watching is not None:
            self._watching.cancel()

    async def _cancel(self, task: asyncio.Task[Any] | None) -> None:
        await self._left()
        self.left = True
        if task is not None:
            task.cancel()


@dataclass(slots=True)
class Reply:
    """What is sent back: a body, or pieces of one as they come."""

    body: bytes = b""
    status: int = 200
    kind: bytes = JSON
    headers: Headers = field(default_factory=list)
    pieces: AsyncIterator[bytes] | None = None

    @classmethod
    def of(cls, value: Any, status: int = 200) -> Reply:
        """A value as JSON."""
        return cls(encode(value), status)


class Refusal(Exception):
    """A request that is not carried out, with the status and the detail that the client gets."""

    def __init__(self, status: int, detail: Any, **fields: Any) -> None:
        super().__init__(str(detail))
        self.status = status
        self.content = {"detail": detail, **fields}
        self.headers: Headers = [(b"retry-after", b"1")] if status in (429, 503) else []

    @classmethod
    def field(cls, location: list[str | int], kind: str, message: str) -> Refusal:
        """A body whose field is wrong, told in the words that HTTP servers of this field use."""
        return cls(422, [_problem(kind, location, message)])


def _problem(kind: str, location: list[str | int], message: str) -> dict[str, Any]:
    return {"type": kind, "loc": ["body", *location], "msg": message}


def _is_shallow(found: dict[str, Any], body: bytes) -> bool:
    """Whether a body can be written again as part of something larger: orjson reads deeper than it writes."""
    if body.count(b"{") + body.count(b"[") <= DEEPEST:  # the usual case, and cheap to tell
        return True
    wrapped: Any = found
    for _ in range(_ORJSON_DEPTH - DEEPEST):
        wrapped = [wrapped]
    try:
        orjson.dumps(wrapped)
    except orjson.JSONEncodeError:
        return False
    return True
