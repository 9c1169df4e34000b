"""One small ASGI application that all servers are made of: a table of routes, and one boundary around them.

The boundary is where a body is bounded in size and in time, a token is demanded, work at once is capped, and whatever
a handler raises becomes JSON. A handler takes an `Incoming` and gives back a `Reply`; it knows nothing of ASGI.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, MutableMapping
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, TypeVar
from urllib.parse import unquote

import orjson

from ludus.encoding import encode
from ludus.errors import UserError
from ludus.outcome import Failure
from ludus.secrets import public, without_keys
from ludus.serve import deadlines

T = TypeVar("T")
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

log = logging.getLogger("ludus.serve")

JSON = b"application/json"
TEXT = b"text/plain; charset=utf-8"
EVENTS = b"text/event-stream; charset=utf-8"

#: How deep a body may be nested, and how deep orjson writes at most.
DEEPEST = 200
_ORJSON_DEPTH = 254

#: For how many seconds nobody looks whether the client of a long request has left.
PATIENCE = 0.5

#: Which rollout a request belongs to, as a first part of its path.
ROLLOUT_PREFIX = "/ng-rollout/"
CAPTURE = "/training-token-capture/"

#: The status that tells a client what kind of failure it was: 5xx is the world's fault, and can be tried again.
STATUS_OF = {"timeout": 504, "refused": 502, "disconnected": 502, "judge": 503, "no_judge": 503, "http_429": 429}
STATUS_OF |= {"out_of_turn": 409, "not_played": 422}  # of a game: the client's mistakes
BAD_REQUEST = {"bad_request", "bad_row"}


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


@dataclass(slots=True)
class Guard:
    """What a server puts up with. `token` is demanded of every request when it is set."""

    token: str | None = None
    body_bytes: int = 64 << 20
    body_seconds: float = 30.0
    at_once: int = 16384


Handler = Callable[[Incoming], Awaitable[Reply]]


class App:
    """An ASGI application out of handlers. `other` gets the POSTs that no route names (a server's tools)."""

    def __init__(self, guard: Guard | None = None) -> None:
        self.guard = guard or Guard()
        self.routes: dict[tuple[str, str], Handler] = {("GET", "/"): _alive, ("GET", "/health"): self.health}
        self.routes["GET", "/metrics"] = self._metrics
        self.other: Handler | None = None
        self.requests: Counter[tuple[str, int]] = Counter()
        self.seconds = 0.0
        self.busy = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            raise RuntimeError(f"this server speaks HTTP only, not {scope['type']}")
        began = perf_counter()
        self.busy += 1
        incoming = Incoming(scope, receive, scope["method"], scope["path"])
        route = "refused"
        try:
            if incoming.path.startswith(ROLLOUT_PREFIX):
                _strip(incoming)
            handler = self.routes.get((incoming.method, incoming.path))
            route = incoming.path if handler is not None else "other"
            reply = await self._answer(incoming, handler or self._other(incoming))
        except Exception as error:
            reply = self._failed(error, incoming)
        finally:
            self.busy -= 1
        self.requests[route, reply.status] += 1
        await _send(reply, send)
        self.seconds += perf_counter() - began

    async def _answer(self, incoming: Incoming, handler: Handler) -> Reply:
        guard = self.guard
        if guard.token is not None and incoming.path not in ("/", "/health"):
            self.authorise(incoming, guard.token)
        if self.busy > guard.at_once:
            raise Refusal(503, f"{guard.at_once} requests are being answered already: come back later")
        if incoming.method == "POST":
            incoming.body = await _read(incoming, guard)
        return await handler(incoming)

    def _other(self, incoming: Incoming) -> Handler:
        if self.other is not None and incoming.method == "POST":
            return self.other
        allowed = ", ".join(method for method, path in self.routes if path == incoming.path)
        if not allowed:
            raise Refusal(404, "Not Found")
        refusal = Refusal(405, "Method Not Allowed")
        refusal.headers.append((b"allow", allowed.encode()))
        raise refusal

    def authorise(self, incoming: Incoming, token: str) -> None:
        """Refuse a request that does not show the token."""
        given = incoming.header(b"authorization") or ""
        given = given[7:] if given[:7].lower() == "bearer " else incoming.header(b"x-api-key") or ""
        if not hmac.compare_digest(given.encode("utf-8", "replace"), token.encode()):
            raise Refusal(401, "this server wants a token: Authorization: Bearer TOKEN")

    async def refuse(self, refused: Refusal, send: Send) -> None:
        """Send a refusal."""
        await _send(Reply(encode(refused.content), refused.status, headers=refused.headers), send)

    def _failed(self, error: Exception, incoming: Incoming) -> Reply:
        if isinstance(error, Refusal):
            return Reply(encode(error.content), error.status, headers=error.headers)
        failure = error if isinstance(error, Failure) else Failure.of(error, "agent")
        status = 400 if isinstance(error, UserError) or failure.kind in BAD_REQUEST else status_of(failure)
        if failure.kind == "crash" and not isinstance(error, UserError):
            told = without_keys("".join(traceback.format_exception(error)))
            log.error("%s %s failed\n%s", incoming.method, incoming.path, told)
        detail = str(error) if isinstance(error, UserError) else failure.cause
        content = {"detail": public(detail), "stage": failure.stage, "kind": failure.kind}
        return Reply(encode(content), status)

    async def health(self, incoming: Incoming) -> Reply:
        """That it is up, and how busy it is."""
        return Reply.of({"status": "ok", **self.state()})

    def state(self) -> dict[str, float]:
        """Numbers that say how the server is doing; they are the gauges of `/metrics`."""
        return {"requests_in_flight": self.busy}

    async def _metrics(self, incoming: Incoming) -> Reply:
        lines = [f"# TYPE ludus_{name} gauge\nludus_{name} {value:g}" for name, value in self.state().items()]
        lines.append("# TYPE ludus_requests_total counter")
        lines += [
            f'ludus_requests_total{{route="{route}",status="{status}"}} {count}'
            for (route, status), count in sorted(self.requests.items())
        ]
        lines.append(f"# TYPE ludus_request_seconds_total counter\nludus_request_seconds_total {self.seconds:.6f}")
        return Reply(("\n".join(lines) + "\n").encode(), kind=b"text/plain; version=0.0.4; charset=utf-8")


def status_of(failure: Failure) -> int:
    """The HTTP status for a failure."""
    return STATUS_OF.get(failure.kind, 500)


async def _alive(incoming: Incoming) -> Reply:
    return Reply(b'{"status":"ok"}')


def _strip(incoming: Incoming) -> None:
    """Take `/ng-rollout/ID` off a path, and remember the id."""
    name, slash, rest = incoming.path[len(ROLLOUT_PREFIX) :].partition("/")
    if not name or not slash:
        raise Refusal(404, "Not Found")
    incoming.rollout, incoming.path = unquote(name), slash + rest
    if incoming.path.startswith(CAPTURE):
        incoming.path = incoming.path[len(CAPTURE) - 1 :]
        incoming.wants_tokens = True


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


async def _read(incoming: Incoming, guard: Guard) -> bytes:
    """The whole body, unless it is too large or too slow."""
    length = incoming.header(b"content-length")
    if length is not None and length.isdigit() and int(length) > guard.body_bytes:
        raise Refusal(413, f"the body is larger than {guard.body_bytes} bytes")
    try:
        return await deadlines.within(guard.body_seconds, _pieces(incoming, guard))
    except TimeoutError:
        raise Refusal(408, f"the body did not arrive within {guard.body_seconds:g} s") from None


async def _pieces(incoming: Incoming, guard: Guard) -> bytes:
    pieces, size, more = list[bytes](), 0, True
    while more:
        message = await incoming.receive()
        pieces.append(_piece(message))
        size += len(pieces[-1])
        if size > guard.body_bytes:
            raise Refusal(413, f"the body is larger than {guard.body_bytes} bytes")
        more = bool(message.get("more_body"))
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _piece(message: MutableMapping[str, Any]) -> bytes:
    if message["type"] == "http.disconnect":
        raise Refusal(499, "the client left")
    body: bytes = message.get("body", b"")
    return body


async def _send(reply: Reply, send: Send) -> None:
    headers = [(b"content-type", reply.kind), *reply.headers]
    if reply.pieces is None:
        headers.append((b"content-length", str(len(reply.body)).encode()))
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        await send({"type": "http.response.body", "body": reply.body})
        return
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    async for piece in reply.pieces:
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})
