"""The pages of MiniWoB++, and the only requests that a browser of ours gets answered.

The pages are served under a host that does not exist, from the files of the package `miniwob`. Every other request is
refused, so a page reaches neither the network nor other files. A Content Security Policy with a nonce lets only the
package's own scripts run: text that a model types stays text, even where a page writes it into its HTML.
"""

from __future__ import annotations

import secrets
from functools import cache
from importlib.util import find_spec
from mimetypes import guess_type
from pathlib import Path
from typing import Any

ORIGIN = "http://miniwob.invalid"

#: The pages, in the order of their names.
PAGES = tuple(
    """
    ascending-numbers bisect-angle book-flight book-flight-nodelay button-delay buy-ticket choose-date choose-date-easy
    choose-date-medium choose-date-nodelay choose-list circle-center click-button click-button-sequence click-checkboxes
    click-checkboxes-large click-checkboxes-soft click-checkboxes-transfer click-collapsible click-collapsible-2
    click-collapsible-2-nodelay click-collapsible-nodelay click-color click-dialog click-dialog-2 click-link click-menu
    click-menu-2 click-option click-pie click-pie-nodelay click-scroll-list click-shades click-shape click-tab
    click-tab-2 click-tab-2-easy click-tab-2-hard click-tab-2-medium click-test click-test-2 click-test-transfer
    click-widget copy-paste copy-paste-2 count-shape count-sides drag-box drag-items drag-items-grid drag-shapes
    drag-sort-numbers email-inbox email-inbox-delete email-inbox-forward email-inbox-forward-nl
    email-inbox-forward-nl-turk email-inbox-important email-inbox-nl-turk email-inbox-noscroll email-inbox-reply
    email-inbox-star-reply enter-date enter-password enter-text enter-text-2 enter-text-dynamic enter-time
    find-greatest find-midpoint find-word focus-text focus-text-2 form-sequence form-sequence-2 form-sequence-3
    generate-number grid-coordinate guess-number highlight-text highlight-text-2 hot-cold identify-shape login-user
    login-user-popup multi-layouts multi-orderings navigate-tree number-checkboxes odd-or-even order-food phone-book
    read-table read-table-2 resize-textarea scroll-text search-engine sign-agreement simple-algebra simple-arithmetic
    social-media social-media-all social-media-some stock-market terminal text-transform tic-tac-toe unicode-test
    use-autocomplete use-autocomplete-nodelay use-slider use-slider-2 use-spinner visual-addition
    """.split()
)

_NONCE = secrets.token_urlsafe(16)
_POLICY = (
    f"default-src 'none'; script-src 'self' 'nonce-{_NONCE}'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "font-src 'self' data:; form-action 'none'; base-uri 'none'"
)


def url_of(page: str) -> str:
    """The address of a page; `page` must be one of PAGES."""
    return f"{ORIGIN}/miniwob/{page}.html"


class Visit:
    """Answers the requests of one page: its own document once, and the files that the document names."""

    def __init__(self) -> None:
        self._has_document = False

    async def answer(self, route: Any) -> None:
        """Send a file of the package, or refuse the request. A second document would be a new problem: refused."""
        request = route.request
        path = request.url.removeprefix(ORIGIN).partition("?")[0].partition("#")[0]
        is_document = request.is_navigation_request()
        if not request.url.startswith(f"{ORIGIN}/") or path not in _files() or (is_document and self._has_document):
            # An aborted document would replace the page by one that reports the error; no content leaves it as it is.
            await (route.fulfill(status=204) if is_document else route.abort())
            return
        self._has_document |= is_document
        content, headers = _content(path)
        await route.fulfill(body=content, headers=headers)


@cache
def _files() -> dict[str, Path]:
    """The files of the package by the path in their address."""
    spec = find_spec("miniwob")
    assert spec is not None
    assert spec.origin is not None
    root = Path(spec.origin).parent / "html"
    return {f"/{file.relative_to(root).as_posix()}": file for file in root.rglob("*") if file.is_file()}


@cache
def _content(path: str) -> tuple[bytes, dict[str, str]]:
    """The bytes of a file and the headers of its response."""
    file = _files()[path]
    kind = guess_type(file.name)[0] or "application/octet-stream"
    content, headers = file.read_bytes(), {"Content-Type": kind}
    if kind == "text/html":
        content = content.replace(b"<script", f'<script nonce="{_NONCE}"'.encode())
        headers = {"Content-Type": "text/html; charset=utf-8", "Content-Security-Policy": _POLICY}
    return content, headers
