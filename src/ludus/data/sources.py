"""Where rows come from: a file, standard input or a dataset on the Hugging Face hub, read as a stream of JSON lines.

Memory does not grow with the source. A row arrives as the bytes of one JSON object, together with its place for error
messages.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

from ludus.adapter import has_prefix
from ludus.data.files import read_file_lines
from ludus.data.hub import hub_lines, is_hub, pinned
from ludus.dataset import Generated
from ludus.environment import Environment
from ludus.runtime.encoding import encode


def read_lines(source: str | Path) -> Generator[tuple[str, bytes], None, None]:
    """The rows of a file, of standard input (`-`) or of `hf:OWNER/NAME[@REVISION][:SPLIT]`, each with its place.

    Or the rows that an adapter makes of other people's tasks: `harbor:FOLDER`.
    The place is `FILE:LINE`, or `FILE row N` in a JSON array or a Parquet file. Blank lines are left out.
    """
    if is_hub(source):
        return hub_lines(str(source))
    if has_prefix(str(source)):
        return _adapted(str(source))
    path = Path("/dev/stdin") if str(source) == "-" else Path(source)
    return read_file_lines(path, str(path))


def _adapted(source: str) -> Generator[tuple[str, bytes], None, None]:
    rows = Environment.load(source).rows()
    if not isinstance(rows, Generated):
        yield from read_lines(rows)
        return
    for number, row in enumerate(rows.for_other_machines().rows(0), start=1):
        yield f"{source} row {number}", encode(row)


def resolve(source: str | Path) -> str | Path:
    """The source that `read_lines` reads the same way every time: a path, or a hub dataset pinned to its commit."""
    if is_hub(source):
        return pinned(str(source))
    if has_prefix(str(source)):
        return str(source)
    return Path("/dev/stdin") if str(source) == "-" else Path(source)
