"""Request bodies that a client compressed. The limit on a body holds for what it decompresses to."""

from __future__ import annotations

import zlib
from functools import partial
from importlib import import_module
from typing import Any

from ludus.errors import install_command
from ludus.http.messages import Incoming, Refusal
from ludus.runtime.threads import in_thread

#: 47 is the window size for zlib: 32 KB, and the format is recognised by its header.
_GZIP_OR_ZLIB = partial(zlib.decompressobj, 47)


async def decode_body(incoming: Incoming, limit: int) -> None:
    """Decompress the body of a request, if its Content-Encoding says that it is compressed."""
    encoding = (incoming.header(b"content-encoding") or "identity").strip().lower()
    if encoding == "identity" or not incoming.body:
        return
    if encoding in ("gzip", "x-gzip", "deflate"):
        incoming.body = await in_thread(_decompressed, incoming.body, _GZIP_OR_ZLIB, limit, encoding)
    elif encoding == "zstd":
        incoming.body = await in_thread(_decompressed, incoming.body, _zstd_decompressor(), limit, encoding)
    else:
        raise _unsupported(f"send the body plain or with Content-Encoding: gzip, not {encoding[:60]!r}")


def _zstd_decompressor() -> Any:
    """The class of zstd decompressors: Python's own from 3.14 on, and before that a package with the same names."""
    for module in ("compression.zstd", "backports.zstd"):
        try:
            return import_module(module).ZstdDecompressor
        except ModuleNotFoundError:
            continue
    how = f"{install_command('zstd')} where the server runs"
    raise _unsupported(f"a body with Content-Encoding: zstd needs a package: {how}, or send gzip")


def _unsupported(why: str) -> Refusal:
    refusal = Refusal(415, why)
    refusal.headers.append((b"accept-encoding", b"gzip"))
    return refusal


def _decompressed(body: bytes, decompressor: Any, limit: int, encoding: str) -> bytes:
    """The parts of a body, one after another. Never more than one byte above the limit is made of it."""
    parts, size = list[bytes](), 0
    try:
        while body:
            part = decompressor()
            parts.append(part.decompress(body, limit + 1 - size))
            size += len(parts[-1])
            if size > limit:
                raise Refusal(413, f"the decompressed body is larger than {limit} bytes")
            if not part.eof:
                raise Refusal(400, f"the body ends in the middle of its {encoding} data")
            body = part.unused_data
    except Refusal:
        raise
    except Exception as error:  # each library has an error of its own
        raise Refusal(400, f"the body is not {encoding}, as its Content-Encoding says: {error}") from error
    return b"".join(parts)
