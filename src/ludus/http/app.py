"""The small ASGI application that all our servers are made of: a table of routes behind one guard.

A handler takes an `Incoming` and returns a `Reply`; it knows nothing of ASGI. Exceptions become JSON replies.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Any
from urllib.parse import unquote

from ludus.errors import Failure, UserError
from ludus.http.exchange import exchange_of
from ludus.http.guard import Guard
from ludus.http.messages import Headers, Incoming, Receive, Refusal, Reply, Scope, Send
from ludus.http.prometheus import Metric, prometheus_reply
from ludus.runtime.boundary import is_cancelled
from ludus.runtime.encoding import encode
from ludus.runtime.keys import without_keys, without_keys_and_paths

log = logging.getLogger("ludus.serve")

#: A path may begin with this prefix and the id of the rollout that the request belongs to.
ROLLOUT_PREFIX = "/ng-rollout/"
CAPTURE = "/training-token-capture/"

#: The HTTP status for each kind of failure. 5xx are infrastructure errors, which a client may retry.
STATUS_OF = {"timeout": 504, "refused": 502, "disconnected": 502, "judge": 503, "no_judge": 503, "http_429": 429}
STATUS_OF |= {"out_of_turn": 409, "not_played": 422, "drift": 422}  # a client's mistakes, not worth a retry
BAD_REQUEST = {"bad_request", "bad_row"}


Handler = Callable[[Incoming], Awaitable[Reply]]


class App:
    """An ASGI application made of handlers. `other` handles POSTs to paths without a route (a server's tools)."""

    def __init__(self, guard: Guard | None = None) -> None:
        self.guard = guard or Guard()
        self.routes: dict[tuple[str, str], Handler] = {("GET", "/"): _alive, ("GET", "/health"): self.health}
        self.routes["GET", "/metrics"] = self._metrics
        self.routes["HEAD", "/"] = _alive  # some programs look whether a server is there before they use it
        self.other: Handler | None = None
        self.requests: Counter[tuple[str, int]] = Counter()
        self.seconds = 0.0
        self.busy = 0
        self.worker: int | None = None  #: the number of this worker, if the server has several

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            raise RuntimeError(f"this server speaks only HTTP, not {scope['type']}")
        began = perf_counter()
        self.busy += 1
        incoming = Incoming(scope, receive, scope["method"], scope["path"])
        route, admitted = "refused", False
        try:
            if incoming.path.startswith(ROLLOUT_PREFIX):
                _strip(incoming)
            _refuse_websockets(incoming)
            self.admit(incoming)
            admitted = True
            handler = self.routes.get((incoming.method, incoming.path))
            route = incoming.path if handler is not None else "other"
            handler = handler or self._other(incoming)
            if self.busy > self.guard.at_once:
                raise self.too_busy()
            if incoming.method == "POST":
                incoming.body = await self.guard.read(incoming)
            reply = await handler(incoming)
        except asyncio.CancelledError as error:
            reply = self._failed(_stopping() or Failure.of(error, "agent"), incoming)
        except Exception as error:
            reply = self._failed(error, incoming)
        finally:
            self.busy -= 1
            if admitted:
                self.release(incoming)
        self.requests[route, reply.status] += 1
        exchange = exchange_of(send)
        if exchange is None or not exchange.reply(reply):
            await _send(reply, send)
        self.seconds += perf_counter() - began

    def _other(self, incoming: Incoming) -> Handler:
        if self.other is not None and incoming.method == "POST":
            return self.other
        allowed = ", ".join(method for method, path in self.routes if path == incoming.path)
        if not allowed:
            raise Refusal(404, "Not Found")
        refusal = Refusal(405, "Method Not Allowed")
        refusal.headers.append((b"allow", allowed.encode()))
        raise refusal

    def admit(self, incoming: Incoming) -> None:
        """Refuse a request that may not come in. Called before its body is read."""
        self.guard.admit(incoming)

    def release(self, incoming: Incoming) -> None:
        """An admitted request was answered, or failed."""

    def too_busy(self) -> Refusal:
        """The refusal of a request above the limit on concurrent requests."""
        return Refusal(503, f"the server already handles {self.guard.at_once} requests: retry later")

    async def refuse(self, refused: Refusal, send: Send) -> None:
        """Send a refusal."""
        await _send(Reply(encode(refused.content), refused.status, headers=refused.headers), send)

    def _failed(self, error: Exception, incoming: Incoming) -> Reply:
        if isinstance(error, Refusal):
            return self.error_reply(incoming, error.status, error.content, error.headers)
        failure = error if isinstance(error, Failure) else Failure.of(error, "agent")
        status = 400 if isinstance(error, UserError) or failure.kind in BAD_REQUEST else status_of(failure)
        if failure.kind == "crash" and not isinstance(error, UserError):
            text = without_keys("".join(traceback.format_exception(error)))
            log.error("%s %s failed\n%s", incoming.method, incoming.path, text)
        detail = str(error) if isinstance(error, UserError) else failure.cause
        content = {"detail": without_keys_and_paths(detail), "stage": failure.stage, "kind": failure.kind}
        return self.error_reply(incoming, status, content, [])

    def error_reply(self, incoming: Incoming, status: int, content: dict[str, Any], headers: Headers) -> Reply:
        """The reply to a request that was refused or failed. `content` has a `detail`."""
        return Reply(encode(content), status, headers=headers)

    async def health(self, incoming: Incoming) -> Reply:
        """The status `ok`, with the gauges of the server."""
        return Reply.of({"status": "ok", **self._worker_label(), **self.state()})

    def state(self) -> dict[str, float]:
        """The gauges that `/health` and `/metrics` report."""
        return {"requests_in_flight": self.busy}

    def _worker_label(self) -> dict[str, Any]:
        return {} if self.worker is None else {"worker": self.worker}

    async def _metrics(self, incoming: Incoming) -> Reply:
        worker = self._worker_label()
        metrics = [Metric(name, "gauge", [(value, worker)]) for name, value in self.state().items()]
        requests = sorted(self.requests.items())
        samples = [(count, {"route": route, "status": status, **worker}) for (route, status), count in requests]
        metrics.append(Metric("requests_total", "counter", samples))
        metrics.append(Metric("request_seconds_total", "counter", [(round(self.seconds, 6), worker)]))
        return prometheus_reply(metrics)


def _stopping() -> Refusal | None:
    """The refusal of a request whose task was cancelled: a server cancels requests only when it stops."""
    return Refusal(503, "the server is stopping", kind="disconnected") if is_cancelled() else None


def status_of(failure: Failure) -> int:
    """The HTTP status for a failure."""
    return STATUS_OF.get(failure.kind, 500)


async def _alive(incoming: Incoming) -> Reply:
    return Reply(b'{"status":"ok"}')


def _refuse_websockets(incoming: Incoming) -> None:
    """Refuse to switch to WebSockets at once: a client that hears 426 goes on with plain requests."""
    if incoming.named.get(b"upgrade", b"").lower() == b"websocket":
        refusal = Refusal(426, "this server has no WebSockets: send plain HTTP requests")
        refusal.headers += [(b"upgrade", b"HTTP/1.1"), (b"connection", b"close")]
        raise refusal


def _strip(incoming: Incoming) -> None:
    """Move the id of `/ng-rollout/ID` from the path to `incoming.rollout`."""
    name, slash, rest = incoming.path[len(ROLLOUT_PREFIX) :].partition("/")
    if not name or not slash:
        raise Refusal(404, "Not Found")
    incoming.rollout, incoming.path = unquote(name), slash + rest
    if incoming.path.startswith(CAPTURE):
        incoming.path = incoming.path[len(CAPTURE) - 1 :]
        incoming.wants_tokens = True


async def _send(reply: Reply, send: Send) -> None:
    headers = [(b"content-type", reply.kind), *reply.headers]
    if reply.pieces is None:
        headers.append((b"content-length", str(len(reply.body)).encode()))
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    if reply.pieces is not None:
        async for piece in reply.pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b"" if reply.pieces is not None else reply.body})
