"""The text of a page, taken out of what a server sent. Runs in a child process, since any server can send anything."""

from __future__ import annotations

import re
import zlib
from importlib.util import find_spec

from ludus.errors import missing_extra

_CHARSET = re.compile(r"charset=[\"']?([\w.:-]{1,40})", re.IGNORECASE)
_GZIP_OR_ZLIB = 47


def require_extraction() -> None:
    """Say at once, and not at the first page, that the library is not there."""
    if find_spec("trafilatura") is None:
        raise missing_extra("trafilatura", "search")


def text_of(body: bytes, encoding: str, content_type: str, limit: int) -> str:
    """The readable text of a body as it came over the wire, of which at most `limit` bytes are looked at."""
    if encoding in ("gzip", "x-gzip", "deflate"):
        body = zlib.decompressobj(_GZIP_OR_ZLIB).decompress(body, limit)
    charset = _CHARSET.search(content_type)
    if "html" not in content_type:
        return _decoded(body, charset[1] if charset else "utf-8").strip()
    import trafilatura

    return (trafilatura.extract(_decoded(body, charset[1]) if charset else body) or "").strip()


def _decoded(body: bytes, charset: str) -> str:
    try:
        return body.decode(charset, "replace")
    except LookupError:
        return body.decode("utf-8", "replace")
