"""`ludus serve FOLDER`: the server that people had, on the same routes, behind our guard."""

from __future__ import annotations

import secrets
from typing import Any
from urllib.parse import quote

from ludus.http.app import ROLLOUT_PREFIX, App, Handler
from ludus.http.channels import ANNOUNCED
from ludus.http.connection import HttpReply
from ludus.http.guard import Guard
from ludus.http.messages import Incoming, Refusal, Reply

#: The headers of a request that are not passed on: they belong to one connection, or are the guard's.
_NOT_PASSED_ON = frozenset(
    b"host content-length connection transfer-encoding accept-encoding authorization upgrade keep-alive expect".split()
)
#: The headers of a reply that are not passed back.
_NOT_PASSED_BACK = frozenset(
    b"content-length content-type connection transfer-encoding date server upgrade keep-alive".split()
) | {ANNOUNCED}

#: The cookie that names the process that a session began in. A session does not survive its process.
_BORN = "ludus-born"
#: The requests that begin a session, also for a client that has cookies of an older one.
_BEGINNINGS = ("/seed_session", "/reset")
#: What needs no escape in a path.
_IN_PATH = "/:@!$&'()*+,;=~"


class ServedApp(App):
    """Passes every request to a hosted server, and its reply back."""

    def __init__(self, transport: Any, guard: Guard) -> None:
        super().__init__(guard)
        self._transport, self._name = transport, secrets.token_hex(8)
        kept = ["/health", "/metrics", *(["/"] if guard.token is not None else [])]  # `/` needs no token
        self.routes = {(method, path): self.routes["GET", path] for path in kept for method in ("GET", "HEAD")}

    def _other(self, incoming: Incoming) -> Handler:
        return self._pass_on

    async def _pass_on(self, incoming: Incoming) -> Reply:
        self._check_session(incoming)
        await read_body(incoming, self.guard)
        path = incoming.path if incoming.rollout is None else f"{ROLLOUT_PREFIX}{incoming.rollout}{incoming.path}"
        work = self._transport.request(
            method_of(incoming), with_query(path, incoming), incoming.body, passed_on(incoming)
        )
        reply = passed_back(await incoming.cancel_on_disconnect(work))
        self._check_session(incoming)
        if any(name.lower() == b"set-cookie" for name, _ in reply.headers):
            reply.headers.append((b"set-cookie", f"{_BORN}={self._born()}; Path=/; HttpOnly".encode()))
        return reply

    def _check_session(self, incoming: Incoming) -> None:
        """Refuse a request of a session that died with its process. The request itself may have started a new one."""
        if incoming.path not in _BEGINNINGS and incoming.cookie(_BORN) not in (None, self._born()):
            raise Refusal(410, "the server was started again and has forgotten the session", kind="session_lost")

    def _born(self) -> str:
        """Names the process of the server, which holds its sessions."""
        return f"{self._name}-{self._transport.generation}"


async def read_body(incoming: Incoming, guard: Guard) -> None:
    """Read the body of a request that is passed on, whatever its method is."""
    if incoming.method not in ("GET", "HEAD", "POST"):
        incoming.body = await guard.read(incoming)


def method_of(incoming: Incoming) -> str:
    """The method of a request that is passed on. HEAD is GET: the client waits for the body that a reply announces."""
    return "GET" if incoming.method == "HEAD" else incoming.method


def with_query(path: str, incoming: Incoming) -> str:
    """A path with the query of a request. The path was decoded, and is decoded once more where it goes."""
    query = (incoming.scope.get("query_string") or b"").decode("latin-1")
    path = quote(path, safe=_IN_PATH)
    return f"{path}?{query}" if query else path


def passed_on(incoming: Incoming) -> dict[str, str]:
    """The headers of a request that a hosted server gets."""
    return {
        str(name, "latin-1"): str(value, "latin-1")
        for name, value in incoming.scope["headers"]
        if name not in _NOT_PASSED_ON
    }


def passed_back(reply: HttpReply) -> Reply:
    """The reply of a hosted server."""
    headers = [(name, value) for name, value in reply.headers if name.lower() not in _NOT_PASSED_BACK]
    kind = (reply.header("content-type") or "application/json").encode("latin-1")
    return Reply(reply.body, reply.status, kind=kind, headers=headers)
