"""Rows of files in several formats, read as a stream of JSON lines.

Memory does not grow with the file. Whatever the format, a row arrives as the bytes of one JSON object, together with
its place for error messages. The first bytes of a file tell its format; its name decides only between CSV and JSON
lines. So a gzipped file named `.jsonl` is read, and the error for an unknown format names it.
"""

from __future__ import annotations

import io
import tempfile
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO

import orjson

from ludus.data.compression import DamagedArchive, unpacked
from ludus.data.csv_rows import csv_lines
from ludus.data.json_array import BrokenArray, array_elements
from ludus.data.line_ends import LongLine, numbered_lines
from ludus.data.parquet_rows import parquet_lines
from ludus.errors import UserError, cannot_read
from ludus.runtime.encoding import json_error
from ludus.runtime.formats import GZIP, HEAD, PARQUET, ZSTD, refuse_foreign

#: The longest row that we read, in bytes. Several copies of a row are in memory while it is checked.
MAX_ROW = 64 * 1024 * 1024

#: The largest Parquet file that is unpacked, or read from a pipe, into the folder for temporary files.
MAX_SPOOLED = 8 * 1024**3

_PACKED = {"gzip": GZIP, "zstd": ZSTD}
_BOM = b"\xef\xbb\xbf"


def read_file_lines(path: Path, name: str) -> Generator[tuple[str, bytes], None, None]:
    """The rows of a file, which places and errors call `name`.

    The place is `NAME:LINE`, or `NAME row N` in a JSON array or a Parquet file. Blank lines are left out.
    """
    count = 0
    try:
        with ExitStack() as stack:
            file: io.BufferedReader = stack.enter_context(path.open("rb"))
            for count, row in enumerate(_rows(name, path, file, stack), start=1):  # noqa: B007
                yield row
    except DamagedArchive as error:
        after = f" after row {count}" if count else ""
        raise UserError(f"{name}{after}: {error}", "Copy or download it again") from error
    except BrokenArray as error:
        raise UserError(f"{name}: {error}", "The file must hold one JSON array of objects") from error
    except OSError as error:
        raise cannot_read(name, error) from error


def _rows(name: str, path: Path, file: io.BufferedReader, stack: ExitStack) -> Iterator[tuple[str, bytes]]:
    head, whole = _peek(file)
    plain = True
    if (content := unpacked(whole, head)) is not None:
        plain = False
        head, whole = _peek(content)
        if (again := next((kind for kind, start in _PACKED.items() if head.startswith(start)), None)) is not None:
            raise UserError(f"{name}: this is {again} inside a compressed file", "Unpack it once")
    if head.startswith(PARQUET):
        on_disk = path if plain and path.is_file() else _spooled(name, whole, stack)
        return parquet_lines(name, on_disk, MAX_ROW)
    refuse_foreign(name, head)
    if head.startswith(_BOM):
        whole.read(len(_BOM))
        head = head[len(_BOM) :]
    suffix = _suffix(name)
    text = head.lstrip()
    if suffix in (".csv", ".tsv") or (suffix not in (".jsonl", ".json", ".ndjson") and _looks_like_csv(text)):
        return csv_lines(name, whole, "\t" if suffix == ".tsv" else None, MAX_ROW)
    if text.startswith(b"["):
        return _array_rows(name, whole)
    if _looks_like_csv(text):
        raise UserError(f"{name}:1: this is CSV and not JSON", "Rename it to end with .csv")
    first, _, rest = text.partition(b"\n")
    if first.strip() == b"{" and rest.strip():
        hint = f"Write each row on one line: jq -c . {path.name} > rows.jsonl"
        raise UserError(f"{name}: this is a JSON object over several lines", hint)
    return _json_lines(name, whole)


def _peek(file: IO[bytes]) -> tuple[bytes, io.BufferedReader]:
    """The first bytes of a file, and the file from its beginning: a pipe cannot be rewound."""
    head = file.read(HEAD)
    if isinstance(file, io.BufferedReader) and file.seekable():
        file.seek(0)
        return head, file
    return head, io.BufferedReader(_Prefixed(head, file), 2**16)


class _Prefixed(io.RawIOBase):
    """A stream with the bytes that were read from its beginning put back."""

    def __init__(self, head: bytes, rest: IO[bytes]) -> None:
        self._head, self._rest = memoryview(head), rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        if self._head:
            count = min(len(buffer), len(self._head))
            buffer[:count] = self._head[:count]
            self._head = self._head[count:]
            return count
        return self._rest.readinto(buffer) or 0  # type: ignore[attr-defined]


def _spooled(name: str, file: IO[bytes], stack: ExitStack) -> Path:
    """A temporary copy of a stream: Parquet is read from its end."""
    try:
        copy = stack.enter_context(tempfile.NamedTemporaryFile(prefix="ludus-rows-"))  # noqa: SIM115
        while chunk := file.read(2**20):
            if copy.tell() + len(chunk) > MAX_SPOOLED:
                cause = f"{name}: this Parquet file has more than {MAX_SPOOLED:,} bytes when it is unpacked"
                raise UserError(cause, "Unpack it and name the unpacked file")
            copy.write(chunk)
        copy.flush()
    except OSError as error:
        cause = f"cannot copy the rows to a temporary file: {error.strerror}"
        raise UserError(cause, "Set TMPDIR to a folder with more room") from error
    return Path(copy.name)


def _suffix(name: str) -> str:
    """The suffix without that of the compression: `.csv` for `rows.csv.gz`."""
    path = Path(name)
    return (path.with_suffix("") if path.suffix in (".gz", ".zst", ".zstd", ".gzip") else path).suffix.lower()


def _looks_like_csv(text: bytes) -> bool:
    """Whether the first line may be a CSV header: names with a separator between them, and no JSON object."""
    line = text.split(b"\n", 1)[0]
    return line[:1].isalpha() and any(mark in line for mark in (b",", b"\t", b";")) and b"{" not in line


def _array_rows(name: str, file: io.BufferedReader) -> Iterator[tuple[str, bytes]]:
    chunks = iter(lambda: file.read(2**16), b"")
    for number, element in enumerate(array_elements(chunks, MAX_ROW), start=1):
        where = f"{name} row {number}"
        if b"\n" in element or b"\r" in element:  # a row must be one line; in valid JSON, line ends are only whitespace
            try:
                orjson.loads(element)
            except orjson.JSONDecodeError as error:
                raise UserError(f"{where}: {json_error(error)}", "Each row must be a JSON object") from error
            element = element.replace(b"\n", b" ").replace(b"\r", b" ")
        yield where, element


def _json_lines(name: str, file: io.BufferedReader) -> Iterator[tuple[str, bytes]]:
    try:
        for number, line in numbered_lines(file, MAX_ROW):
            if len(line) > MAX_ROW:
                raise LongLine(number)
            if line.startswith(_BOM):  # files with a byte order mark were joined
                line = line[len(_BOM) :]
                if not line.strip():
                    continue
            yield f"{name}:{number}", line
    except LongLine as error:
        hint = "Check its line ends, or leave the row out"
        raise UserError(f"{name}:{error.number}: the row is longer than {MAX_ROW:,} bytes", hint) from error
