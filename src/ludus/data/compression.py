"""Compressed files as streams of bytes. A damaged or truncated archive is an error, never a shorter file."""

from __future__ import annotations

import gzip
import io
import zlib
from typing import IO, TYPE_CHECKING

from ludus.errors import missing_extra
from ludus.runtime.formats import GZIP, ZSTD

if TYPE_CHECKING:
    import zstandard

#: Compressed bytes per step. A zstd block of 4 bytes can hold 128 KB, so a decompression bomb takes at most 64 MB a
#: step.
_PIECE = 2048

#: The largest zstd window that we unpack: 128 MB, as `zstd --long` writes it.
_MAX_WINDOW = 2**27


class DamagedArchive(Exception):
    """A compressed file that cannot be unpacked. The message names what is wrong with it."""


def unpacked(file: IO[bytes], head: bytes) -> io.BufferedReader | None:
    """The content of a compressed file that begins with `head`; None if it is not compressed."""
    if head.startswith(GZIP):
        return io.BufferedReader(_Gzip(file), 2**16)
    if head.startswith(ZSTD):
        return io.BufferedReader(_Zstd(file), 2**16)
    return None


class _Gzip(io.RawIOBase):
    def __init__(self, file: IO[bytes]) -> None:
        self._file = gzip.GzipFile(fileobj=file)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        try:
            return self._file.readinto(buffer)
        except EOFError as error:
            raise DamagedArchive("this gzip file is truncated") from error
        except (gzip.BadGzipFile, zlib.error) as error:
            raise DamagedArchive(f"this gzip file is damaged: {error}") from error


class _Zstd(io.RawIOBase):
    """The frames of a zstd file, one after the other. The library's own reader does not notice a truncated file."""

    def __init__(self, file: IO[bytes]) -> None:
        try:
            import zstandard
        except ImportError as error:
            raise missing_extra("zstandard, which reads .zst files,", "data") from error
        self._file = file
        self._error = zstandard.ZstdError
        self._library = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW)
        self._frame: zstandard.ZstdDecompressionObj | None = None
        self._packed = b""
        self._content = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._content and self._advance():
            pass
        count = min(len(buffer), len(self._content))
        buffer[:count] = self._content[:count]
        self._content = self._content[count:]
        return count

    def _advance(self) -> bool:
        """Unpack one more piece. Returns false at the end of the file."""
        self._packed = self._packed or self._file.read(_PIECE)
        if not self._packed:
            if self._frame is not None:
                raise DamagedArchive("this zstd file is truncated")
            return False
        frame = self._frame = self._frame or self._library.decompressobj()
        try:
            self._content = memoryview(frame.decompress(self._packed))
        except self._error as error:
            raise DamagedArchive(f"this zstd file is damaged: {error}") from error
        self._packed = b""
        if frame.eof:
            self._packed, self._frame = frame.unused_data, None
        return True
