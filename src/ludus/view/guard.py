"""Who may use the viewer: the person who has the link, from a browser on this machine, and no other web page.

The link carries a token that works once. The token becomes a cookie: no script can read it, and no other site can send
it. The guard of our servers checks Host and Origin. The viewer shows what models and tools wrote, so every reply
forbids foreign scripts, styles, frames and connections.
"""

from __future__ import annotations

import hmac
import secrets
from urllib.parse import parse_qs

from ludus.http.guard import Guard
from ludus.http.messages import Headers, Incoming, Refusal, Reply
from ludus.runtime.numbers import whole_number

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; media-src data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
SECURITY_HEADERS: Headers = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), microphone=(), geolocation=()"),
    (b"cache-control", b"no-store"),
]

#: How many links may wait to be opened.
MAX_LINKS = 20

#: The page that stores the cookie opens the viewer by itself: a redirect would lose the cookie after a link elsewhere.
_ENTER = (
    b'<!doctype html><html lang="en"><meta charset="utf-8"><title>ludus view</title>'
    b'<meta http-equiv="refresh" content="0;url=/"><a href="/">Open the viewer</a></html>'
)
_CLOSED = (
    b'<!doctype html><html lang="en"><meta charset="utf-8"><title>ludus view</title><h1>This link does not open the '
    b"viewer</h1><p>A link works once, and only while the viewer runs. Press Enter in the terminal of "
    b"<code>ludus view</code> for a new one.</p></html>"
)
_FROM_ELSEWHERE = (
    "start it with ludus view --port 8800, forward that port with ssh -L 8800:127.0.0.1:8800 HOST, and open "
    "http://localhost:8800"
)
HTML = b"text/html; charset=utf-8"


class ViewGuard(Guard):
    """The guard of the viewer. `new_token` makes the token of a new link."""

    def __init__(self) -> None:
        super().__init__(token=None, body_bytes=1 << 20, host_hint=_FROM_ELSEWHERE)
        self._links: dict[str, None] = {}
        self._session = secrets.token_urlsafe(32)

    def new_token(self) -> str:
        """A token that opens the viewer once."""
        token = secrets.token_urlsafe(24)
        self._links[token] = None
        while len(self._links) > MAX_LINKS:
            del self._links[next(iter(self._links))]
        return token

    def admit(self, incoming: Incoming) -> None:
        """Refuse other hosts, other origins, and everybody without the cookie. The page `/` says how to get in."""
        super().admit(incoming)
        if incoming.path != "/" and not self.knows(incoming):
            raise Refusal(403, "open the link that ludus view printed")

    def knows(self, incoming: Incoming) -> bool:
        """Whether a request carries the cookie."""
        cookie = incoming.cookie(_cookie_name(incoming)) or ""
        return hmac.compare_digest(cookie.encode("latin-1", "replace"), self._session.encode())

    def enter(self, incoming: Incoming) -> Reply | None:
        """The reply to a first request: the cookie for a valid token, else how to get in. None with a cookie."""
        presented = parse_qs(str(incoming.scope.get("query_string", b""), "latin-1")).get("token", [""])[0]
        for token in list(self._links):
            if hmac.compare_digest(presented.encode("latin-1", "replace"), token.encode()):
                del self._links[token]
                cookie = f"{_cookie_name(incoming)}={self._session}; Path=/; HttpOnly; SameSite=Strict"
                return Reply(_ENTER, kind=HTML, headers=[(b"set-cookie", cookie.encode())])
        if not self.knows(incoming):
            return Reply(_CLOSED, status=403, kind=HTML)
        return Reply(_ENTER, kind=HTML) if presented else None


def _cookie_name(incoming: Incoming) -> str:
    """The name holds the port, because a cookie belongs to a host: two viewers can be open at once."""
    _, _, port = (incoming.header(b"host") or "").rpartition(":")
    return f"ludus_view_{port if whole_number(port) is not None else 'none'}"
