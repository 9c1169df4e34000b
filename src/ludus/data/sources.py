"""Where rows come from: files in several formats, read as a stream of JSON lines.

Memory does not grow with the file. Whatever the format, a row arrives as the bytes of one JSON object, together with
its place for error messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ludus.errors import UserError


def read_lines(path: Path) -> Iterator[tuple[str, bytes]]:
    """The rows of a file, each with its place (`FILE:LINE`). Blank lines are left out."""
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, start=1):
                if not line.isspace():
                    yield f"{path}:{number}", line
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
