"""The format of a file by its first bytes, so that an error can name a format that we do not read."""

from __future__ import annotations

from io import BufferedReader
from typing import IO

from ludus.errors import UserError

GZIP = b"\x1f\x8b"
ZSTD = b"\x28\xb5\x2f\xfd"
PARQUET = b"PAR1"

#: Bytes that are needed to tell the formats apart.
HEAD = 4096

#: Formats that Ludus does not read: their first bytes, their names, and what to do.
_FOREIGN = (
    (b"PK\x03\x04", "a ZIP archive", "Unpack it: unzip FILE"),
    (b"BZh", "bzip2", "Unpack it: bzip2 -dk FILE"),
    (b"\xfd7zXZ\x00", "xz", "Unpack it: xz -dk FILE"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive", "Unpack it: 7z x FILE"),
    (b"ARROW1", "an Arrow file", "Write it as Parquet"),
    (b"\xff\xff\xff\xff", "an Arrow stream", "Write it as Parquet"),
    (b"SQLite format 3\x00", "a SQLite database", "Export the table: sqlite3 -json FILE 'select * from TABLE'"),
    (b"\x89HDF", "an HDF5 file", "Write it as Parquet"),
    (b"%PDF", "a PDF", "Name a file of rows"),
    (b"\xff\xfe", "UTF-16 text", "Convert it: iconv -f UTF-16 -t UTF-8 FILE > NEW"),
    (b"\xfe\xff", "UTF-16 text", "Convert it: iconv -f UTF-16 -t UTF-8 FILE > NEW"),
    (b"version https://git-lfs", "a Git LFS pointer and not the data", "Fetch the data: git lfs pull"),
    (b"\x80\x04", "a Python pickle", "Write it as JSON lines"),
    (b"\x80\x05", "a Python pickle", "Write it as JSON lines"),
)
#: The magic bytes of a skippable zstd frame, after a byte from 50 to 5F.
_SKIPPABLE = b"\x2a\x4d\x18"
_READ_ELSEWHERE = (
    (GZIP, "gzip", "Unpack it: gunzip -k FILE"),
    (ZSTD, "zstd", "Unpack it: zstd -dk FILE"),
    (PARQUET, "Parquet", "Write it as JSON lines"),
)


def refuse_foreign(name: str, head: bytes) -> None:
    """Refuse a file that begins with `head` if Ludus does not read its format."""
    for start, what, hint in _FOREIGN:
        if head.startswith(start):
            raise UserError(f"{name}: this is {what}", hint)
    if head[1:4] == _SKIPPABLE and 0x50 <= head[0] <= 0x5F:
        raise UserError(f"{name}: this is zstd that begins with a skippable frame", "Unpack it: zstd -dk FILE")
    if head[257:262] == b"ustar":
        raise UserError(f"{name}: this is a tar archive", "Unpack it: tar xf FILE")
    if head.lstrip()[:14].lower().startswith((b"<!doctype html", b"<html", b"<?xml")):
        raise UserError(f"{name}: this is a web page or XML", "Download the file itself, not the page that shows it")


def refuse_all_but_json_lines(name: object, file: IO[bytes]) -> None:
    """Refuse and close a file of rollouts without JSON lines. Other files stay at their beginning."""
    try:
        if isinstance(file, BufferedReader):
            _check_json_lines(str(name), file.peek(HEAD)[:HEAD])
    except UserError:
        file.close()
        raise


def _check_json_lines(name: str, head: bytes) -> None:
    for start, what, hint in _READ_ELSEWHERE:
        if head.startswith(start):
            raise UserError(f"{name}: this is {what}", hint)
    refuse_foreign(name, head)
    if head.lstrip()[:1] == b"[":
        raise UserError(f"{name}: this is a JSON array", "Write each object on a line: jq -c '.[]' FILE > NEW")
