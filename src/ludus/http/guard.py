"""The guard of a server: what a request must satisfy before a handler sees it.

A server with a token demands the token. A server without one listens on loopback, where every program of the machine
may use it, but no web page may: a browser sends a page's POST to any address. The browser also sends the page's origin.
A page cannot send JSON to another origin without a preflight request, which we refuse, and a page that pretends to have
our address (DNS rebinding) still names its own host.

Both are checked before a byte of the body is read. The body then has a limit on its size and its time.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass

from ludus.errors import UserError
from ludus.http.exchange import exchange_of
from ludus.http.messages import JSON, Incoming, Refusal
from ludus.runtime.boundary import in_time
from ludus.runtime.keys import look_up_key
from ludus.runtime.numbers import whole_number

#: The names of this machine for its own programs.
LOOPBACK = ("127.0.0.1", "::1", "localhost")
_LOOPBACK_HOSTS = frozenset((b"127.0.0.1", b"[::1]", b"localhost"))

#: The requests that need no token.
_OPEN = {(method, path) for method in ("GET", "HEAD") for path in ("/", "/health")}


@dataclass(slots=True)
class Guard:
    """The limits of a server: body size and time, and requests `at_once`. If `token` is set, every request needs it."""

    token: str | None = None
    body_bytes: int = 64 << 20
    body_seconds: float = 30.0
    at_once: int = 16384
    #: The hint for a client that calls a server without a token by another name than localhost.
    host_hint: str = "set LUDUS_TOKEN, or the variable that --token-env names, and start the server again"

    def admit(self, incoming: Incoming) -> None:
        """Refuse a request without the token or, where there is no token, one that a web page may have sent."""
        if self.token is None:
            _refuse_web_pages(incoming, self.host_hint)
        elif not is_open(incoming) and not hmac.compare_digest(
            token_of(incoming).encode("latin-1", "replace"), self.token.encode()
        ):
            raise Refusal(401, "this server requires a token: send the header Authorization: Bearer TOKEN")

    async def read(self, incoming: Incoming) -> bytes:
        """The whole body. Raises a `Refusal` if it is too large or too slow."""
        exchange = exchange_of(incoming.receive)
        if exchange is not None and (body := exchange.take(self.body_bytes)) is not None:
            return body
        if (whole_number(incoming.header(b"content-length") or "") or 0) > self.body_bytes:
            raise Refusal(413, f"the body is larger than {self.body_bytes} bytes")
        try:
            return await in_time(self.body_seconds, self._pieces(incoming))
        except TimeoutError:
            raise Refusal(408, f"the body did not arrive within {self.body_seconds:g} s") from None

    async def _pieces(self, incoming: Incoming) -> bytes:
        pieces, size = list[bytes](), 0
        while True:
            message = await incoming.receive()
            if message["type"] == "http.disconnect":
                raise Refusal(499, "the client left")
            body: bytes = message.get("body", b"")
            size += len(body)
            if size > self.body_bytes:
                raise Refusal(413, f"the body is larger than {self.body_bytes} bytes")
            if not message.get("more_body"):
                return b"".join((*pieces, body)) if pieces else body
            pieces.append(body)


def required_token(hosts: set[str], token_env: str) -> str | None:
    """The token in a variable, if it is set. Listening on more than loopback requires one."""
    token = look_up_key(token_env) or None
    if token is None and not hosts <= set(LOOPBACK):
        shown = min(hosts - set(LOOPBACK))
        raise UserError(f"listening on {shown} needs a token", f"Set {token_env} in the environment")
    return token


def is_open(incoming: Incoming) -> bool:
    """Whether a request needs no token. A POST to the same path is one: it may name a tool."""
    return (incoming.method, incoming.path) in _OPEN


def token_of(incoming: Incoming) -> str:
    """The token of a request: `Authorization: Bearer TOKEN`, `x-api-key`, or Gemini's `x-goog-api-key`."""
    sent = incoming.header(b"authorization") or ""
    if sent[:7].lower() == "bearer ":
        return sent[7:]
    return incoming.header(b"x-api-key") or incoming.header(b"x-goog-api-key") or ""


def _refuse_web_pages(incoming: Incoming, host_hint: str) -> None:
    """Check Host and Origin, and demand JSON as the type of a POST's body."""
    headers, named = incoming.scope["headers"], incoming.named
    if len(named) != len(headers):
        for name in (b"host", b"origin", b"content-type"):
            if sum(key == name for key, _ in headers) > 1:
                raise Refusal(400, f"send the header {name.decode()} once")
    host, origin, kind = named.get(b"host", b""), named.get(b"origin", b""), named.get(b"content-type", b"")
    has_body = b"transfer-encoding" in named or named.get(b"content-length", b"0") != b"0"
    name = host if host.endswith(b"]") else host.rpartition(b":")[0] or host
    if name.lower() not in _LOOPBACK_HOSTS:
        raise Refusal(421, f"a server without a token answers as localhost, not as {_shown(host)}: {host_hint}")
    if origin and origin != b"http://" + host:
        raise Refusal(403, f"a server without a token answers no web page of another origin ({_shown(origin)})")
    if has_body and kind != JSON and incoming.method == "POST" and kind.partition(b";")[0].strip().lower() != JSON:
        raise Refusal(415, f"send the header Content-Type: application/json, not {_shown(kind)}")


def _shown(value: bytes) -> str:
    """A header's value for an error message."""
    return repr(value[:100].decode("latin-1"))
