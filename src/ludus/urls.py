"""URLs that people type, checked where they are read: what is wrong with one is said before anything is asked."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

from ludus.errors import UserError


def checked_url(url: str, of: str = "a server", form: str = "http://HOST:PORT") -> SplitResult:
    """The parts of a URL, if there can be an HTTP server behind it.

    checked_url("http://127.0.0.1:8000/v1", "a model").hostname   # '127.0.0.1'
    """
    try:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https"):
            raise ValueError("it does not begin with http:// or https://")
        if not (parts.hostname or "").encode("idna") or parts.port == 0:
            raise ValueError("it names no server")
    except ValueError as error:
        raise UserError(f"{url} is not the URL of {of}: {error}", f"Write it as {form}") from error
    return parts
