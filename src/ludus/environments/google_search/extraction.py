"""Extract the text of a page. Runs in a child process, because a server may send hostile bytes."""

from __future__ import annotations

import re
import zlib
from importlib.util import find_spec

from ludus.errors import missing_extra

_CHARSET = re.compile(r"charset=[\"']?([\w.:-]{1,40})", re.IGNORECASE)
_GZIP_OR_ZLIB = 47


def require_extraction() -> None:
    """Raise at startup, not at the first page, if the library is missing."""
    if find_spec("trafilatura") is None:
        raise missing_extra("trafilatura", "search")


def text_of(body: bytes, encoding: str, content_type: str, limit: int) -> str:
    """The readable text of a raw response body; at most `limit` unpacked bytes are read."""
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
