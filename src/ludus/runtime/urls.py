"""URLs that users type: checked when they are read, and shown without passwords and keys."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, urlsplit

from ludus.errors import UserError

_USER = re.compile(r"(?<=://)[^/?#]*@")


def checked_url(url: str, of: str = "a server", form: str = "http://HOST:PORT") -> SplitResult:
    """The parts of an HTTP URL with a host. Any other URL is a UserError: `of` says what the URL is for.

    checked_url("http://127.0.0.1:8000/v1", "a model").hostname   # '127.0.0.1'
    """
    try:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https"):
            raise ValueError("it does not begin with http:// or https://")
        if not (parts.hostname or "").encode("idna") or parts.port == 0:
            raise ValueError("it names no server")
    except ValueError as error:
        raise UserError(f"{shown_url(url)} is not the URL of {of}: {error}", f"Write it as {form}") from error
    return parts


def shown_url(url: str) -> str:
    """A URL that may be recorded: the user, the password and the values of its query are masked.

    shown_url("http://127.0.0.1:8000/v1?api-key=abc")   # 'http://127.0.0.1:8000/v1?api-key=***'
    """
    url, hash_, name = _USER.sub("***@", url).partition("#")  # the part after # is a model's name
    address, mark, query = url.partition("?")
    fields = [field.partition("=") for field in query.split("&")] if query else []
    masked = "&".join(f"{field}=***" if equals else "***" for field, equals, _ in fields)
    return address + mark + masked + hash_ + name
